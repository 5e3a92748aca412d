//! Files that `lowtide explain` is given in place of a log: notebooks, models, pictures.

use crate::kit::sandbox;

#[test]
fn a_notebook_is_read_by_what_its_cells_show() {
    let error = "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 14.75 GiB of which 1.00 GiB is free.";
    let notebook = serde_json::json!({
        "nbformat": 4,
        "cells": [
            {"cell_type": "code", "source": [], "outputs": [
                {"output_type": "display_data", "data": {"image/png": "aGVsbG8=", "text/plain": ["<Figure>"]}},
                {"output_type": "stream", "name": "stdout", "text": ["step 1 loss 2.0\n", "step 2 loss 1.9\n"]},
                {"output_type": "error", "ename": "OutOfMemoryError", "evalue": error, "traceback": [
                    "OutOfMemoryError                          Traceback (most recent call last)",
                    "\u{1b}[0;32m<ipython-input-2-abc>\u{1b}[0m in \u{1b}[0;36m<cell line: 1>\u{1b}[0;34m()\u{1b}[0m\n      1 for x in loader:\n----> 2 \
                     \u{1b}[0mloss\u{1b}[0m.backward()\n      3 done()\n",
                    format!("OutOfMemoryError: {error}"),
                ]},
            ]},
        ],
    });
    let place = sandbox();
    place.write("train.ipynb", notebook.to_string().as_bytes());
    let text = place.run("explain train.ipynb").stdout;
    assert!(text.starts_with("the outputs of train.ipynb, line 10: GPU 0 ran out of memory"), "{text}");
    assert!(text.contains("loss.backward()") && text.contains("after step 2"), "{text}");
}

#[test]
fn a_file_without_text_is_refused() {
    let place = sandbox();
    let rubbish: Vec<u8> = (0..200_000_u32).map(|number| (number.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let files: [(&str, &[u8], &str); 4] = [
        ("rubbish.bin", &rubbish, "no text"),
        ("model.bin", b"\x80\x02}q\0X\x05\0\0\0CUDA out of memory", "a pickle"),
        ("a.out", b"\x7fELF\x02\x01\x01\0CUDA out of memory\0", "a program (ELF)"),
        ("screen.png", b"\x89PNG\r\n\x1a\n\0\0", "a picture (PNG)"),
    ];
    for (name, bytes, kind) in files {
        place.write(name, bytes);
        let text = place.run(&format!("explain {name}")).refusal();
        assert!(text.contains(&format!("{name}: this is {kind}, not a log\n")), "{text}");
    }
}

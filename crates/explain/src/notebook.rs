//! A notebook's file as the text that its cells show: what ran prints there, and the error with its stack.
//!
//! Pictures and widgets are left out, and so is the code of the cells, which a stack shows where it failed.

use lowtide_log::without_colours;
use serde_json::Value;

/// The outputs of a notebook's cells, in order; `None` where a text is no notebook.
#[must_use]
pub fn notebook_text(file: &[u8]) -> Option<String> {
    let Value::Object(notebook) = serde_json::from_slice(file).ok()? else { return None };
    let cells = notebook.get("cells").filter(|_| notebook.contains_key("nbformat"))?.as_array()?;
    let mut text = String::new();
    for output in cells.iter().filter_map(|cell| cell.get("outputs")?.as_array()).flatten() {
        let shown = shown(output).unwrap_or_default();
        text.push_str(&shown);
        if !shown.is_empty() && !shown.ends_with('\n') {
            text.push('\n');
        }
    }
    Some(String::from_utf8_lossy(&without_colours(text.as_bytes())).into_owned())
}

/// What one output shows as text.
fn shown(output: &Value) -> Option<String> {
    match output.get("output_type")?.as_str()? {
        "stream" => joined(output.get("text")?, ""),
        "error" => {
            let stack = joined(output.get("traceback")?, "\n").filter(|stack| !stack.trim().is_empty());
            // Some tools keep only the name and the message.
            stack.or_else(|| Some(format!("{}: {}", output.get("ename")?.as_str()?, output.get("evalue")?.as_str()?)))
        }
        "execute_result" | "display_data" => joined(output.get("data")?.get("text/plain")?, ""),
        _ => None,
    }
}

/// A text, or its lines.
fn joined(value: &Value, between: &str) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Array(lines) => Some(lines.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(between)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ERROR: &str = r#"{"output_type": "error", "ename": "OutOfMemoryError", "evalue": "CUDA out of memory.", "traceback": [STACK]}"#;

    fn notebook(outputs: &str) -> String {
        format!(
            r##"{{"cells": [{{"cell_type": "markdown", "source": ["# out of memory"]}}, {{"cell_type": "code", "source": ["x"],
                "outputs": [{outputs}]}}], "nbformat": 4}}"##
        )
    }

    #[test]
    fn cells_show_what_they_print_and_their_errors() {
        let stack = ERROR
            .replace("STACK", "\"\\u001b[0;31mOutOfMemoryError\\u001b[0m  Traceback\", \"----> 3 loss.backward()\"");
        let outputs = format!(
            r#"{{"output_type": "display_data", "data": {{"image/png": "CUDA+out+of+memory", "text/plain": ["<Figure>"]}}}},
               {{"output_type": "stream", "text": ["step 1\n", "step 2\n"]}}, {stack}"#
        );
        let text = notebook_text(notebook(&outputs).as_bytes()).expect("a notebook");
        assert_eq!(text, "<Figure>\nstep 1\nstep 2\nOutOfMemoryError  Traceback\n----> 3 loss.backward()\n");
        let bare = notebook_text(notebook(&ERROR.replace("STACK", "")).as_bytes());
        assert_eq!(bare.as_deref(), Some("OutOfMemoryError: CUDA out of memory.\n"));
    }

    #[test]
    fn other_texts_are_no_notebooks() {
        for text in
            ["", "step 1\n", "{\"cells\": [1]}", "{\"nbformat\": 4}", "[1]", "{\"msg\": \"cells\"}\n{\"msg\": \"b\"}\n"]
        {
            assert_eq!(notebook_text(text.as_bytes()), None, "{text}");
        }
    }
}

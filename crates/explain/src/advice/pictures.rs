//! Programs that make pictures and films by diffusion: their switches, from those that are on to the next stronger ones.

use super::case::Case;
use super::list::{ALL, List, NOT_MODEL};
use crate::Lever;
use crate::log::{Flag, Sign};

/// A program by whose switches parts of a model go to the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Program {
    Comfy,
    /// The web UI for Stable Diffusion, and Forge.
    Webui,
    /// Diffusers' pipelines, and programs built on them.
    Pipeline,
    /// One that is not PyTorch's.
    Other,
}

/// What else makes weights smaller, beside a model that goes to the host.
const FEWER_BYTES: &str = "weights in fewer bytes (fp16, fp8, nf4, GGUF), which change the picture a little";

impl Case<'_> {
    fn program(&self) -> Program {
        match (self.shows(Sign::Comfy), self.shows(Sign::Webui)) {
            (true, _) => Program::Comfy,
            (false, true) => Program::Webui,
            (false, false) if self.may_be_torch() => Program::Pipeline,
            (false, false) => Program::Other,
        }
    }

    fn is_on(&self, flag: Flag) -> bool {
        self.facts.flags.is_on(flag)
    }

    /// How more of the model stays on the host than does now; none where nothing more can.
    fn picture_offload(&self) -> Option<&'static str> {
        let on = |flag| self.is_on(flag);
        Some(match self.program() {
            _ if self.shares_memory_with_host() => return None,
            Program::Other => return None,
            Program::Comfy if on(Flag::NoVram) => return None,
            Program::Comfy if on(Flag::LowVram) => {
                "start with --novram in place of --lowvram, and close other programs that use the card; slower"
            }
            Program::Comfy => "start with --lowvram (or --novram), and close other programs that use the card; slower",
            Program::Webui if on(Flag::LowVram) => return None,
            Program::Webui if on(Flag::MediumVram) => "start with --lowvram in place of --medvram; slower",
            Program::Webui => "start with --medvram, or --lowvram for the least memory; slower",
            Program::Pipeline if on(Flag::LayerOffload) => return None,
            Program::Pipeline if on(Flag::ModelOffload) => {
                "pipe.enable_sequential_cpu_offload() in place of enable_model_cpu_offload(), without pipe.to('cuda'); slower"
            }
            Program::Pipeline => {
                "pipe.enable_model_cpu_offload(), or pipe.enable_sequential_cpu_offload() for the least memory, without \
                 pipe.to('cuda'); lowvram mode in programs built on it; slower"
            }
        })
    }

    /// How a decoder works in tiles, and attention in slices, where they do not yet.
    fn picture_tiles(&self) -> String {
        let slices = !self.is_on(Flag::SlicedAttention);
        let fused = self.is_on(Flag::FusedAttention);
        let with = |text: &str, more: &str, is_wanted: bool| format!("{text}{}", if is_wanted { more } else { "" });
        match self.program() {
            Program::Comfy => with(
                "Decode in tiles (VAE Decode (Tiled), smaller tiles)",
                ", and attention in slices (--use-split-cross-attention)",
                slices && !fused,
            ),
            Program::Webui => with(
                "Decode in tiles (Tiled VAE of the extension Tiled Diffusion; built into Forge)",
                ", and attention in slices (--opt-sub-quad-attention, or --xformers)",
                slices && !fused,
            ),
            Program::Pipeline => {
                let calls = [
                    (Flag::TiledDecoder, "pipe.vae.enable_tiling()"),
                    (Flag::SlicedDecoder, "pipe.vae.enable_slicing()"),
                ];
                let off: Vec<&str> =
                    calls.iter().filter(|(flag, _)| !self.is_on(*flag)).map(|(_, call)| *call).collect();
                let decoder = match &*off {
                    [] => "smaller tiles (tile_sample_min_height and tile_sample_min_width of pipe.vae)".to_owned(),
                    off if self.is_on(Flag::TiledDecoder) => format!("{}, smaller tiles", off.join(", ")),
                    off => format!("{}, smaller tiles where it tiles already", off.join(", ")),
                };
                let text = format!("Decode in tiles and slices: {decoder}");
                with(&text, "; pipe.enable_attention_slicing()", slices && !fused)
            }
            Program::Other => "Decode in tiles, where the program can".to_owned(),
        }
    }
}

impl List<'_> {
    /// Keeps on the host what a program of pictures does not use at the moment, where more can go there.
    pub(super) fn unused_to_host(&mut self) {
        if let Some(way) = self.case.picture_offload() {
            self.add(Lever::Offload, format!("Offload what is not in use to CPU memory: {way}"), ALL);
        }
    }

    /// Keeps on the host what is not in use; weights in fewer bytes stand beside it, or alone where nothing more can go.
    pub(super) fn picture_offload(&mut self) {
        let half = [Lever::Quantize, Lever::Precision];
        let kin = if self.names(Lever::Precision) { &half[..1] } else { &half };
        let more = "; or a card with more memory";
        match self.case.picture_offload().is_some() {
            true => {
                self.unused_to_host();
                self.join(Lever::Offload, kin, &format!("; or {FEWER_BYTES}"));
                self.join(Lever::Offload, &[Lever::MoreMemory], more);
            }
            false => {
                let is_there = [Flag::NoVram, Flag::LowVram, Flag::LayerOffload].map(|flag| self.case.is_on(flag));
                let why = match is_there.contains(&true) {
                    true => "; what is not in use is in CPU memory already",
                    false => "",
                };
                let text = format!("Keep {FEWER_BYTES}{why}");
                self.add(Lever::Quantize, text, NOT_MODEL);
                self.join(Lever::Quantize, &kin[1..], "");
                self.join(Lever::Quantize, &[Lever::MoreMemory], more);
            }
        }
    }

    pub(super) fn picture_tiles(&mut self) {
        let text = self.case.picture_tiles();
        self.add(Lever::Tiles, text, ALL);
    }

    /// Attention over the pixels of a picture.
    pub(super) fn picture_attention(&mut self) {
        if self.case.is_on(Flag::FusedAttention) {
            return;
        }
        let way = match self.case.program() {
            Program::Webui => "start with --xformers (or --opt-sdp-attention)",
            Program::Comfy => "--use-pytorch-cross-attention, or xformers installed",
            Program::Pipeline => {
                "pipe.enable_xformers_memory_efficient_attention(), or a PyTorch with scaled_dot_product_attention"
            }
            Program::Other => "that of the framework, where it has one",
        };
        let text =
            format!("Use a fused attention kernel, which never holds the matrix of all pixels by all pixels: {way}");
        self.add(Lever::AttentionKernel, text, ALL);
    }
}

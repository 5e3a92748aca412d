//! Levers for who else is on the device: ranks of the job, a desktop, other programs; and for a card that is free.
//!
//! A display server or a shell is never offered for ending: whoever ends it ends all windows. What holds a few MiB is left
//! out. Where a table shows a card that is free, that comes before anybody is ended; where the log fails before anything is
//! computed, both stand by themselves, because no batch has a part in it.

use lowtide_core::Bytes;
use lowtide_oom::{DeviceKind, Engine};

use super::case::Case;
use super::framework::Framework;
use super::letters::clause;
use super::list::{ALL, Gain, List};
use super::server::Server;
use crate::verdict::{Cause, Holder, Lever, Relation};

/// A process that holds less is not worth a word.
const CRUMB: Bytes = Bytes::from_mib(32);

/// Programs that draw the screen, by the names of their files.
const DISPLAYS: &[&str] = &[
    "Xorg",
    "X",
    "Xwayland",
    "Xvnc",
    "gnome-shell",
    "plasmashell",
    "ksmserver",
    "kwin_x11",
    "kwin_wayland",
    "mutter",
    "cinnamon",
    "compiz",
    "xfwm4",
    "marco",
    "muffin",
    "budgie-wm",
    "sway",
    "weston",
    "Hyprland",
    "sddm-greeter",
    "gdm-x-session",
    "lightdm",
    "dwm.exe",
    "explorer.exe",
    "csrss.exe",
    "ShellExperienceHost.exe",
    "StartMenuExperienceHost.exe",
];

/// Whether a process draws the screen.
fn is_display(holder: &Holder) -> bool {
    let path = holder.name.as_deref().unwrap_or_default();
    let file = path.rsplit(['/', '\\']).next().unwrap_or_default();
    DISPLAYS.contains(&file.split(' ').next().unwrap_or_default())
}

/// `process 8812 python (44.04 GiB)`
fn named(holder: &Holder) -> Option<String> {
    let name = holder.name.as_ref().map_or(String::new(), |name| format!(" {name}"));
    let used = holder.used_bytes.filter(|used| *used >= CRUMB)?;
    Some(format!("process {}{name} ({used})", holder.pid))
}

impl Case<'_> {
    /// The kind of the device, by the message or by who wrote it.
    fn device_kind(&self) -> Option<DeviceKind> {
        self.oom.device_kind.or_else(|| (self.oom.engine == Engine::Rocm).then_some(DeviceKind::Hip))
    }

    /// The program that shows who is on a card.
    pub(super) fn card_tool(&self) -> &'static str {
        match self.device_kind() {
            Some(DeviceKind::Hip) => "rocm-smi",
            Some(DeviceKind::Xpu) => "xpu-smi",
            Some(DeviceKind::Npu) => "npu-smi info",
            _ => "nvidia-smi",
        }
    }

    /// A card that is free, and how to use it.
    fn free_card(&self) -> String {
        let free = &self.judgement.free_cards;
        let list: Vec<String> = free.iter().map(u32::to_string).collect();
        let tool = self.card_tool();
        let (which, unset) = match (free.is_empty(), self.oom.device) {
            (false, Some(device)) if device > 0 => (
                list.join(","),
                ", which the table in the log shows free (in the program it is cuda:0 then)".to_owned(),
            ),
            (false, _) => (list.join(","), ", which the table in the log shows free".to_owned()),
            (true, Some(device)) => ("N".to_owned(), format!(", where N is a free card in {tool} ({device} is full)")),
            (true, None) => ("N".to_owned(), format!(", where N is a free card in {tool}")),
        };
        let variable = match self.device_kind() {
            Some(DeviceKind::Hip) => "HIP_VISIBLE_DEVICES",
            Some(DeviceKind::Xpu) => "ZE_AFFINITY_MASK",
            Some(DeviceKind::Npu) => "ASCEND_RT_VISIBLE_DEVICES",
            _ => "CUDA_VISIBLE_DEVICES",
        };
        let group = match self.facts.log.is_group {
            true => {
                let own = self.framework().own_card().map_or(String::new(), |way| format!("; each rank calls {way}"));
                format!(", set before the launcher, and as many processes as cards{own}")
            }
            false => String::new(),
        };
        format!("a card that is free: {variable}={which}{unset}{group}")
    }

    /// Whether processes of this very run share the card.
    pub(super) fn is_shared_among_ranks(&self) -> bool {
        let holders = &self.judgement.holders;
        let is_rank = holders.iter().any(|holder| holder.relation == Relation::SameJob);
        let is_told = self.narrative().crowds_the_first_card;
        let are_ranks = !holders.is_empty() && holders.iter().all(|holder| holder.relation != Relation::Other);
        is_rank || is_told || self.facts.log.is_group && are_ranks
    }

    /// Whether weights go to a card that others fill, so that nothing was computed yet.
    fn fails_before_any_batch(&self) -> bool {
        let is_bare_move = self.frames.last().is_some_and(|frame| {
            frame.function == "<module>" && (frame.code.contains(".to(") || frame.code.contains(".cuda("))
        });
        // What is read from a checkpoint may be there twice, and a server has a share to ask for.
        let has_ways = self.reads_onto_the_device() || Server::of(self).is_some();
        let moves = (self.loads() || is_bare_move && !self.trains()) && !has_ways;
        // Without figures it may as well be the need.
        let is_shown = self.judgement.certainty >= 0.7 || !self.judgement.free_cards.is_empty();
        let is_theirs = self.judgement.cause == Cause::OtherProcess && is_shown;
        moves
            && is_theirs
            && self.step.is_none()
            && self.framework() == Framework::Torch
            && !self.is_shared_among_ranks()
    }

    /// Whether a line of a script makes one tensor, so that no batch has a part in it.
    pub(super) fn makes_one_tensor(&self) -> bool {
        let calls = ["torch.zeros(", "torch.ones(", "torch.empty(", "torch.full(", "torch.rand(", "torch.randn("];
        let makes = self
            .frames
            .last()
            .is_some_and(|frame| frame.function == "<module>" && calls.iter().any(|call| frame.code.contains(call)));
        makes && !self.trains() && self.facts.batch().is_none()
    }

    /// Who holds the device besides, and what is to be done about it.
    fn ending(&self) -> String {
        let holders = &self.judgement.holders;
        let (displays, others): (Vec<&Holder>, Vec<&Holder>) =
            holders.iter().filter(|holder| holder.relation != Relation::SameJob).partition(|holder| is_display(holder));
        let [who, desktop] = [others, displays].map(|list| list.into_iter().filter_map(named).collect::<Vec<_>>());
        let about = if self.judgement.is_left_over { "about " } else { "" };
        let held = self.judgement.others.map_or("memory ".to_owned(), |others| format!("{about}{others} "));
        let (who, desktop) = (who.join(", "), desktop.join(", "));
        match (who.is_empty(), desktop.is_empty()) {
            (true, true) if self.facts.log.cards.lists_nobody() => format!(
                "Find out who else holds {held}on the device: the table in the log lists nobody, as where a process lost its \
                 parent or is in another container, so ask `fuser -v /dev/nvidia*` as root on the machine itself, and end it, if \
                 it is yours and not needed"
            ),
            (true, true) => format!(
                "Find out who else holds {held}on the device ({}) and end it, if it is yours and not needed",
                self.card_tool()
            ),
            (true, false) => format!(
                "The desktop holds a part of the card ({desktop}), and is not to be ended: log out of it and start over ssh or \
                 from a text console, or let another card draw"
            ),
            (false, true) => format!("End {who}, if it is yours and not needed: others hold {held}on the device"),
            (false, false) => format!(
                "End {who}, if it is yours and not needed: others hold {held}on the device. The desktop's part stays \
                 ({desktop}), unless another card draws or nobody is logged in there"
            ),
        }
    }

    /// Ranks of one job on one card.
    fn cards_for_ranks(&self) -> String {
        let who: Vec<String> = self.judgement.holders.iter().filter_map(named).collect();
        let whose = if who.is_empty() { String::new() } else { format!(" ({})", who.join(", ")) };
        let held = self.judgement.others.map_or("memory ".to_owned(), |others| format!("{others} "));
        let framework = self.framework();
        let own = framework.own_card().map_or(String::new(), |way| format!("{way}, "));
        let loaded = if framework == Framework::Torch { "map_location for what is loaded, " } else { "" };
        format!(
            "Give every rank a card of its own: {own}{loaded}no more processes than cards. Others hold {held}on the device{whose}, and \
             this is a run of several processes; or see with {} whether another job is on this card",
            self.card_tool()
        )
    }
}

impl List<'_> {
    pub(super) fn other_process(&mut self) {
        let case = self.case;
        if self.names(Lever::EndOtherProcess) {
            return;
        }
        let is_enough = case.judgement.cause == Cause::OtherProcess;
        let gain = Gain::peak(case.needed().filter(|_| is_enough));
        if case.is_shared_among_ranks() {
            return self.push(Lever::EndOtherProcess, case.cards_for_ranks(), gain, ALL);
        }
        let mut pieces =
            [(Lever::EndOtherProcess, case.ending()), (Lever::OtherCard, format!("Use {}", case.free_card()))];
        if !case.judgement.free_cards.is_empty() {
            pieces.reverse();
        }
        let [(first, text), (second, other)] = pieces;
        if case.fails_before_any_batch() {
            self.push(first, text, gain, ALL);
            return self.push(second, other, gain, ALL);
        }
        self.push(first, format!("{text}; or {}", clause(&other)), gain, ALL);
        if let Some(advice) = self.advice.last_mut().filter(|advice| advice.lever == first) {
            advice.also.push(second);
        }
    }

    /// Adds kindred levers to the piece about others, whichever of its two ways it begins with.
    pub(super) fn join_others(&mut self, kin: &[Lever], words: &str) {
        let is_it = |lever: Lever| matches!(lever, Lever::EndOtherProcess | Lever::OtherCard);
        let found = self.advice.iter().map(|advice| advice.lever).find(|lever| is_it(*lever));
        if let Some(lever) = found {
            self.join(lever, kin, words);
        }
    }

    pub(super) fn other_card(&mut self) {
        let text = format!("Use {}", self.case.free_card());
        self.add(Lever::OtherCard, text, ALL);
    }

    /// A limit that no message prints, where there was room.
    pub(super) fn look_for_a_limit(&mut self) {
        self.add(
            Lever::RaiseLimit,
            "Look for a limit that the message does not print: make an empty tensor of the same size in a fresh process, with \
             torch.cuda.mem_get_info() before it. Where that fails too, raise what limits it: set_per_process_memory_fraction, a \
             slice of the card (MIG), the profile of a virtual GPU",
            ALL,
        );
    }

    /// Plenty was free afterwards: whoever held it may be gone.
    pub(super) fn look_at_the_card(&mut self) {
        let watch = match self.case.card_tool() {
            "nvidia-smi" => "nvidia-smi -l 1",
            tool => tool,
        };
        let text = format!(
            "Watch who holds the card while the program starts ({watch}) and end it, if it is yours and not needed: what was free \
             when the message was written may not have been free when memory was refused"
        );
        self.add(Lever::EndOtherProcess, text, ALL);
        let words = format!("; or use {}", self.case.free_card());
        self.join(Lever::EndOtherProcess, &[Lever::OtherCard], &words);
        let is_linux = self.case.frames.iter().any(|frame| frame.file.starts_with('/'));
        if !is_linux {
            let words = "; on Windows a larger page file, because what a program takes of the card counts there too";
            self.join(Lever::EndOtherProcess, &[Lever::PageFile], words);
        }
    }
}

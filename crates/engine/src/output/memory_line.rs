//! The line about memory in a run's log.

use lowtide_core::{Bytes, Line, Step};

/// What the line tells.
pub(crate) struct MemoryLine {
    pub(crate) step: Step,
    /// Held by tensors on the device.
    pub(crate) allocated: Bytes,
    /// Held from the device.
    pub(crate) reserved: Bytes,
    /// The line, or what the device has where none is drawn and that is known.
    pub(crate) room: Option<Bytes>,
    /// Taken and there on the host.
    pub(crate) host: Option<(Bytes, Bytes)>,
}

impl MemoryLine {
    /// The room is the line's, or else all that the device has.
    pub(crate) fn room(line: Line, device: Option<Bytes>) -> Option<Bytes> {
        line.limit().or(device)
    }

    /// `[step 1000] memory: device 1.21/3.50 GiB, reserved 1.90, host 12.3/250.9 GiB`; small devices in MiB.
    pub(crate) fn text(&self) -> String {
        let largest = self.room.unwrap_or_default().max(self.reserved).max(self.allocated);
        let (unit, scale) = if largest < Bytes::from_gib(1) { ("MiB", 1024.0) } else { ("GiB", 1.0) };
        let on_device = |bytes: Bytes| bytes.as_gib() * scale;
        let room = self.room.map_or(String::new(), |room| format!("/{:.2}", on_device(room)));
        let host = self
            .host
            .map_or(String::new(), |(used, total)| format!(", host {:.1}/{:.1} GiB", used.as_gib(), total.as_gib()));
        let (allocated, reserved) = (on_device(self.allocated), on_device(self.reserved));
        format!("[step {}] memory: device {allocated:.2}{room} {unit}, reserved {reserved:.2}{host}", self.step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_reads_as_documented() {
        let mib = Bytes::from_mib;
        let mut line = MemoryLine {
            step: Step(1000),
            allocated: mib(1239),
            reserved: mib(1946),
            room: MemoryLine::room(Line::at(mib(3584)).unwrap(), Some(mib(8192))),
            host: Some((mib(12_595), mib(256_922))),
        };
        let expect = "[step 1000] memory: device 1.21/3.50 GiB, reserved 1.90, host 12.3/250.9 GiB";
        assert_eq!(line.text(), expect);
        line.room = MemoryLine::room(Line::NONE, None);
        line.host = None;
        assert_eq!(line.text(), "[step 1000] memory: device 1.21 GiB, reserved 1.90");
        line.allocated = mib(26);
        line.reserved = mib(30);
        assert_eq!(line.text(), "[step 1000] memory: device 26.00 MiB, reserved 30.00");
        line.room = Some(mib(64));
        assert_eq!(line.text(), "[step 1000] memory: device 26.00/64.00 MiB, reserved 30.00");
    }
}

//! Files and folders of checkpoints that a script or its command line names itself, wherever they are.

use std::ffi::OsString;
use std::path::Path;

use lowtide_config::command::at_script;
use lowtide_config::python::{last_name, tree};
use lowtide_config::{Config, Syntax};
use tree_sitter::Node;

use crate::code::has_word;
use crate::nodes::{all, children};
use crate::{Access, script, siblings};

/// What the names of checkpoints end with.
pub const ENDINGS: [&str; 8] = [".pt", ".pth", ".ckpt", ".pth.tar", ".pt.tar", ".safetensors", ".h5", ".keras"];
/// Words in names of files that are written. What is called a model or a checkpoint is as often one to begin with.
const WRITTEN: [&str; 4] = ["save", "out", "best", "last"];
/// Words in names of folders that something is written into.
const FOLDERS: [&str; 10] = ["save", "out", "ckpt", "checkpoint", "model", "best", "last", "log", "exp", "work"];
/// Words in names of what is only read.
const READING: [&str; 8] = ["resume", "load", "pretrain", "init", "weight", "teacher", "from", "data"];

/// What a command names of its checkpoints.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct NamedCheckpoints {
    /// Files that are written.
    pub files: Vec<String>,
    /// Folders outside of the one that the command runs in, into which something is written.
    pub folders: Vec<String>,
}

impl NamedCheckpoints {
    fn add(&mut self, path: String) {
        let is_elsewhere = path.starts_with("..") || Path::new(&path).is_absolute();
        let list = match is_file(&path) {
            true => &mut self.files,
            false if is_elsewhere => &mut self.folders,
            false => return,
        };
        if !list.contains(&path) {
            list.push(path);
        }
    }
}

/// The checkpoints that a command line, its script, the modules beside it and the files of settings that it names have as
/// something that is written. What is only read is none: the weights that a training begins with.
#[must_use]
pub fn named_checkpoints(command: &[OsString], files: &[Config], access: &Access<'_>) -> NamedCheckpoints {
    let mut named = NamedCheckpoints::default();
    let own = script(command, access);
    let modules = own.iter().flat_map(|own| siblings(own, access)).collect::<Vec<_>>();
    let sources: Vec<Source<'_>> = own.iter().chain(&modules).filter_map(Source::read).collect();
    let saved: Vec<&str> = sources.iter().flat_map(Source::saved).collect();
    let settings = files.iter().flat_map(|file| &file.settings);
    let settings = settings.filter_map(|setting| Some((setting.path.last()?.clone(), setting.value.clone())));
    for (name, value) in options(at_script(command).1).into_iter().chain(settings) {
        if is_written(&name, &value, &saved) {
            named.add(value);
        }
    }
    for source in &sources {
        source.paths(&saved).into_iter().for_each(|path| named.add(path));
    }
    named
}

/// Options with their values: `--save-path a.pt`, `--save_path=a.pt`, `save_path=a.pt`.
fn options(words: &[OsString]) -> Vec<(String, String)> {
    let words: Vec<&str> = words.iter().filter_map(|word| word.to_str()).collect();
    let mut options = Vec::new();
    for (index, word) in words.iter().enumerate() {
        match (word.split_once('='), words.get(index + 1)) {
            (Some((option, value)), _) => options.push((option.to_owned(), value.to_owned())),
            (None, Some(value)) if word.starts_with('-') => options.push(((*word).to_owned(), (*value).to_owned())),
            _ => {}
        }
    }
    options
}

fn is_file(path: &str) -> bool {
    ENDINGS.iter().any(|ending| path.ends_with(ending))
}

/// Whether a path with a name is written to, by the name or because the script saves to it.
fn is_written(option: &str, path: &str, saved: &[&str]) -> bool {
    let writing: &[&str] = if is_file(path) { &WRITTEN } else { &FOLDERS };
    let name = option.trim_start_matches('-').replace('-', "_");
    let lower = name.to_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| lower.contains(word));
    !has(&READING) && has(writing) || saved.iter().any(|arguments| has_word(arguments, &name))
}

struct Source<'a> {
    config: &'a Config,
    tree: tree_sitter::Tree,
}

impl<'a> Source<'a> {
    fn read(config: &'a Config) -> Option<Self> {
        let has_paths = || ENDINGS.iter().any(|it| config.text.contains(it)) || config.text.contains("add_argument");
        let is_it = config.syntax == Syntax::Python && has_paths();
        Some(Self { config, tree: tree(&config.text).filter(|_| is_it)? })
    }

    fn slice(&self, node: Node<'_>) -> &'a str {
        &self.config.text[node.byte_range()]
    }

    fn function(&self, call: Node<'_>) -> Option<&'a str> {
        let function = call.child_by_field_name("function").filter(|_| call.kind() == "call")?;
        Some(last_name(self.slice(function)))
    }

    /// What calls that save something are given.
    fn saved(&self) -> Vec<&'a str> {
        let nodes = all(self.tree.root_node()).into_iter();
        let calls = nodes.filter(|node| self.function(*node).is_some_and(|name| name.contains("save")));
        calls.filter_map(|call| Some(self.slice(call.child_by_field_name("arguments")?))).collect()
    }

    /// Paths that are written to.
    fn paths(&self, saved: &[&str]) -> Vec<String> {
        let nodes = all(self.tree.root_node()).into_iter().filter(|node| node.kind() == "string");
        nodes.filter_map(|node| self.path(node, saved)).collect()
    }

    fn path(&self, node: Node<'a>, saved: &[&str]) -> Option<String> {
        let mut path = self.text(node)?.to_owned();
        let mut above = node;
        let mut joined = None;
        while let Some(parent) = above.parent() {
            match parent.kind() {
                "call" => match self.function(parent)? {
                    "add_argument" | "add_option" | "option" => {
                        let option = self.option(parent).filter(|_| above.kind() == "argument_list")?;
                        return is_written(option, &path, saved).then_some(path);
                    }
                    // Whatever a variable holds, this is not the path alone.
                    "join" if joined.replace(()).is_none() => path = self.whole(parent, node)?,
                    name if name.contains("load") || name.contains("from_") => return None,
                    name if name.contains("save") || name == "ModelCheckpoint" => return Some(path),
                    "open" => return self.opens_to_write(parent).then_some(path),
                    _ => {}
                },
                "assignment" | "keyword_argument" | "default_parameter" | "typed_default_parameter" => {
                    let name = parent.child_by_field_name("left").or_else(|| parent.child_by_field_name("name"))?;
                    let name = last_name(self.slice(name));
                    if parent.kind() != "keyword_argument" {
                        return is_written(name, &path, saved).then_some(path);
                    }
                    if name != "default" && is_written(name, &path, saved) {
                        return Some(path);
                    }
                }
                "block" | "module" => return None,
                _ => {}
            }
            above = parent;
        }
        None
    }

    /// Whether the mode of a call of `open` is one that writes; no path of a checkpoint is as short as a mode.
    fn opens_to_write(&self, open: Node<'a>) -> bool {
        let arguments = open.child_by_field_name("arguments").map(children).unwrap_or_default();
        let values = arguments.into_iter().map(|it| it.child_by_field_name("value").unwrap_or(it));
        let mut texts = values.filter_map(|value| self.text(value));
        texts.any(|mode| mode.len() <= 3 && mode.contains(['w', 'a', 'x', '+']))
    }

    /// The path that a call of join makes, for the first of its strings where it has nothing else.
    fn whole(&self, join: Node<'a>, first: Node<'a>) -> Option<String> {
        let parts = children(join.child_by_field_name("arguments")?);
        let is_first = parts.first().is_some_and(|part| part.id() == first.id());
        let texts: Option<Vec<&str>> = parts.iter().map(|part| self.text(*part)).collect();
        texts.filter(|_| is_first).map(|texts| texts.join("/"))
    }

    fn option(&self, call: Node<'a>) -> Option<&'a str> {
        let arguments = children(call.child_by_field_name("arguments")?);
        let words: Vec<&str> = arguments.into_iter().filter_map(|it| self.text(it)).collect();
        words.iter().copied().find(|it| it.starts_with("--")).or(words.first().copied())
    }

    /// The text of a string that nothing is put into.
    fn text(&self, node: Node<'a>) -> Option<&'a str> {
        let text = self.slice(node);
        let start = text.find(['"', '\'']).filter(|_| node.kind() == "string")?;
        let is_plain = !text[..start].contains(['f', 'F', 'b', 'B']) && !text.contains(['\n', '\\']);
        is_plain.then(|| text[start..].trim_matches(['"', '\'']))
    }
}

#[cfg(test)]
mod tests {
    use lowtide_config::command::split;

    use super::*;

    #[track_caller]
    fn check(text: &str, command: &str, expected: &str) {
        check_with(text, "", command, expected);
    }

    #[track_caller]
    fn check_with(text: &str, settings: &str, command: &str, expected: &str) {
        let command: Vec<OsString> = split(command).unwrap().into_iter().map(OsString::from).collect();
        let file = |path: &Path| (path == Path::new("t.py")).then(|| text.to_owned());
        let access = Access { variable: &|_| None, read: &file, cards: &|| 0 };
        let settings = Config::parse_as(Syntax::Yaml, "c.yaml", settings).unwrap();
        let named = named_checkpoints(&command, &[settings], &access);
        let told = named.files.into_iter().chain(named.folders.into_iter().map(|folder| format!("{folder}/")));
        assert_eq!(told.collect::<Vec<_>>().join(" "), expected, "{text}");
    }

    #[test]
    fn what_is_written_is_named() {
        check("torch.save(net.state_dict(), 'ckpt/last.pt')\n", "python t.py", "ckpt/last.pt");
        check("p.add_argument('--save-path', default='../models/best.pth')\n", "python t.py", "../models/best.pth");
        check("p.add_argument('--name', default='a.pt')\nsave_checkpoint(net, args.name)\n", "python t.py", "a.pt");
        check("p.add_argument('--resume', default='a.pt')\n", "python t.py --save-path=b.pt", "b.pt");
        check("PATH = 'net.pth'\ntorch.save(net, PATH)\n", "python t.py --out /srv/x", "net.pth /srv/x/");
        check("torch.save(net, os.path.join('out', 'best.pt'))\n", "python t.py", "out/best.pt");
        check("pickle.dump(net, open('net.pt', mode='wb'))\n", "python t.py", "net.pt");
        check("def save(net, best_path='b.pt'): pass\nmodel.save('m.h5')\n", "python t.py", "b.pt m.h5");
    }

    #[test]
    fn files_of_settings_name_them_too() {
        let settings = "train:\n  output_dir: /srv/exp1\n  save_path: ../best.pth\n  resume_from: ../old.pth\n  log_dir: logs\n\
                        data:\n  data_dir: /srv/out\n  batch_size: 4\n";
        check_with("train(cfg)\n", settings, "python t.py c.yaml", "../best.pth /srv/exp1/");
    }

    #[test]
    fn what_is_only_read_is_not() {
        check("net.load_state_dict(torch.load('old.pt'))\n", "python t.py --weights yolo.pt", "");
        check("net = YOLO(args.model)\n", "python t.py --model yolov8n.pt --ckpt=begin.ckpt", "");
        check("m = AutoModel.from_pretrained('x', file='m.safetensors')\n", "python t.py --data ../set", "");
        check("h5py.File('train.h5', 'r')\nprint('writes no best.pt')\n", "python t.py", "");
        check("net = torch.jit.parse(open('data/weights.pt', 'rb').read())\n", "python t.py", "");
        check("torch.save(net, os.path.join(folder, 'best.pt'))\n", "python t.py", "");
        check("torch.save(net, f'{folder}/best.pt')  # 'a.pt'\n", "python t.py", "");
    }
}

//! Single edits, in the syntax of the file they are made in.

use std::fmt::Display;

use lowtide_config::{Config, Scope, Setting, Syntax};

use super::change::{Edit, Patch};

/// Puts another value in the place of a setting's.
pub(super) fn replace(config: &Config, setting: &Setting, value: impl Display) -> Edit {
    let old = config.text[setting.span.clone()].to_owned();
    let new = match old.as_bytes().first() {
        // A flag of a command line stands alone, and its value behind it.
        None => format!(" {value}"),
        Some(quote @ (b'"' | b'\'')) => format!("{0}{value}{0}", char::from(*quote)),
        _ => value.to_string(),
    };
    Edit { key: setting.path.join("."), span: setting.span.clone(), old, new, value: value.to_string() }
}

/// A change of one setting to another value.
pub(crate) fn single(config: &Config, setting: &Setting, value: impl Display) -> Option<Patch> {
    Patch::new(config, vec![replace(config, setting, value)])
}

/// Turns a switch, in the words of the file it stands in.
pub(crate) fn switch(config: &Config, setting: &Setting, to: bool) -> Option<Patch> {
    let old = &config.text[setting.span.clone()];
    let is_title = old.starts_with(['T', 'F']) || config.syntax == Syntax::Python;
    let value = match (to, old) {
        (true, "0") => "1",
        (false, "1") => "0",
        (true, _) if is_title => "True",
        (false, _) if is_title => "False",
        (true, _) => "true",
        (false, _) => "false",
    };
    single(config, setting, value)
}

/// Adds a setting behind another one of the same group; `None` where nothing can stand behind it.
pub(crate) fn add_after(config: &Config, setting: &Setting, key: &str, value: impl Display) -> Option<Edit> {
    let text = &config.text;
    let line_start = text[..setting.span.start].rfind('\n').map_or(0, |newline| newline + 1);
    let line_end = text[setting.span.end..].find('\n').map_or(text.len(), |newline| setting.span.end + newline);
    let line_end = if text[..line_end].ends_with('\r') { line_end - 1 } else { line_end };
    let newline = if text[line_end..].starts_with("\r\n") { "\r\n" } else { "\n" };
    let before = &text[line_start..setting.span.start];
    let indent: String = before.chars().take_while(|c| c.is_whitespace()).collect();
    let is_flow = config.syntax == Syntax::Yaml && before.contains('{');
    let name = setting.path.last().map_or("", |name| &**name);
    let after = text[setting.span.end..line_end].split('#').next().unwrap_or_default().trim();
    let (at, new) = match config.syntax {
        Syntax::Python => match setting.scope {
            Scope::File => (line_end, format!("{newline}{key} = {value}")),
            // An argument that has a line and a comma of its own.
            Scope::Call if before.trim().trim_end_matches('=') == name && after == "," => {
                (line_end, format!("{newline}{indent}{key}={value},"))
            }
            Scope::Call => (setting.span.end, format!(", {key}={value}")),
            // Another option or field would have to be made.
            _ => return None,
        },
        Syntax::Yaml if is_flow => (setting.span.end, format!(", {key}: {value}")),
        Syntax::Yaml => (line_end, format!("{newline}{indent}{key}: {value}")),
        Syntax::Json => match before.trim_start().starts_with('"') {
            true => (setting.span.end, format!(",{newline}{indent}\"{key}\": {value}")),
            false => (setting.span.end, format!(", \"{key}\": {value}")),
        },
        Syntax::Command => {
            let sign = if text[..setting.span.start].ends_with('=') { '=' } else { ' ' };
            let word = text[..setting.span.start].rsplit(char::is_whitespace).next().unwrap_or_default();
            // A variable's value stands above the command.
            if word.starts_with(|c: char| c.is_ascii_uppercase() || c == '_') {
                return None;
            }
            let dashes = if sign == '=' && !word.starts_with('-') { "" } else { "--" };
            (setting.span.end, format!(" {dashes}{key}{sign}{value}"))
        }
    };
    let mut path = setting.path.clone();
    match config.syntax {
        Syntax::Command => path = vec![key.to_owned()],
        _ => {
            path.pop();
            path.push(key.to_owned());
        }
    }
    Some(Edit { key: path.join("."), span: at..at, old: String::new(), new, value: value.to_string() })
}

/// Sets a variable of the environment before the first command of a script; `None` where it is set already, or where
/// there is no script.
pub(crate) fn export(config: &Config, name: &str, value: &str) -> Option<Patch> {
    let text = &config.text;
    if config.syntax != Syntax::Command || !text.contains('\n') || text.contains(name) {
        return None;
    }
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let is_code = |line: &&str| !line.trim().is_empty() && !line.trim().starts_with('#');
    let first = lines.iter().position(is_code)?;
    let at = lines[..first].iter().map(|line| line.len()).sum();
    let newline = if lines[first].ends_with("\r\n") { "\r\n" } else { "\n" };
    let new = format!("export {name}={value}{newline}");
    let edit = Edit { key: name.to_owned(), span: at..at, old: String::new(), new, value: value.to_owned() };
    Patch::new(config, vec![edit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_goes_before_the_first_command() {
        let text = "#!/bin/bash\n#SBATCH --mem=8G\n\nset -e\npython a.py --batch_size 3\n";
        let config = Config::parse("run.sh", text).unwrap();
        let patch = export(&config, "MINE", "b").unwrap();
        assert_eq!(patch.apply(text).unwrap(), text.replace("set -e", "export MINE=b\nset -e"));
        assert_eq!(
            patch.diff,
            "--- a/run.sh\n+++ b/run.sh\n@@ -1,5 +1,6 @@\n #!/bin/bash\n #SBATCH --mem=8G\n \n+export MINE=b\n set \
             -e\n python a.py --batch_size 3\n"
        );
        assert_eq!(export(&Config::parse("run.sh", "MINE=c python a.py --x 1\n").unwrap(), "MINE", "b"), None);
        assert_eq!(export(&Config::parse("command line", "python a.py --x 1").unwrap(), "MINE", "b"), None);
    }
}

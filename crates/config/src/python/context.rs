//! What a piece of a Python file belongs to.

/// What a piece of code belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Region {
    /// It runs whenever the file does.
    File,
    /// It runs with the file or not: under a condition, in a loop.
    Branch,
    Class,
    Function,
}

/// What the arguments of a call are.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Arguments {
    Plain,
    /// Defaults of options by their names: `set_defaults(steps=4)`.
    Defaults,
    /// What an option or a field is made of, and no settings: `add_argument("--steps", type=int)`.
    Parts,
}

#[derive(Clone, Copy)]
pub(super) struct Context<'a> {
    pub(super) region: Region,
    /// The class, the function or the call whose names are set here.
    pub(super) owner: Option<&'a str>,
    /// What the value that stands here is given to.
    pub(super) target: Option<&'a str>,
    /// The names around the call whose arguments stand here.
    pub(super) around: Option<usize>,
    pub(super) arguments: Arguments,
    /// What a dictionary is called that stands here.
    pub(super) group: Option<usize>,
    /// Whether every name is to be taken for one that is set.
    pub(super) is_obscure: bool,
    /// Whether it is the value of an assignment: `a = b = 4`.
    pub(super) is_chained: bool,
}

impl Context<'_> {
    pub(super) const FILE: Self = Self {
        region: Region::File,
        owner: None,
        target: None,
        around: None,
        arguments: Arguments::Plain,
        group: None,
        is_obscure: false,
        is_chained: false,
    };

    /// Within something else, in the same region.
    pub(super) fn inside(self) -> Self {
        Self { region: self.region, owner: self.owner, is_obscure: self.is_obscure, ..Self::FILE }
    }

    pub(super) fn in_region(self, region: Region) -> Self {
        Self { region, ..self.inside() }
    }

    /// Where code may be run or not.
    pub(super) fn in_branch(self) -> Self {
        self.in_region(if self.region == Region::Function { Region::Function } else { Region::Branch })
    }
}

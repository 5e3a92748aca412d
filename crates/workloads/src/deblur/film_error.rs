//! What can be wrong with films in files.

use std::io;
use std::path::PathBuf;

/// A film that cannot be used; the text names the file.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FilmError {
    /// The system refused.
    #[error("{}: {source}", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    /// A file that is no PNG, or not a whole one.
    #[error("{}: this is not a whole PNG file: {problem}", path.display())]
    Damaged { path: PathBuf, problem: String },
    /// A frame that does not go with the others.
    #[error("{}: this frame is {}, and {} is {}: all frames in a folder have one size",
        path.display(), pixels(*size), first.display(), pixels(*first_size))]
    OtherSize { path: PathBuf, size: [u32; 2], first: PathBuf, first_size: [u32; 2] },
    /// A frame that was of another size, or is longer than any that is allowed.
    #[error("{}: this frame is {}, and {wanted}", path.display(), pixels(*size))]
    Size { path: PathBuf, size: [u32; 2], wanted: String },
    /// A folder without scenes.
    #[error("{}: there is no scene in it: each scene is a folder of PNG frames, or one with `sharp/` and perhaps `blur/` \
             in it", path.display())]
    NoScenes { path: PathBuf },
    /// A folder that is a scene, where one of scenes is wanted.
    #[error("{}: this is a scene itself: name the folder that holds the scenes", path.display())]
    IsScene { path: PathBuf },
    /// A folder without frames.
    #[error("{}: there is no PNG file in it", path.display())]
    NoFrames { path: PathBuf },
    /// Blurred frames alone.
    #[error("{}: there is `blur/` and no `sharp/` beside it", path.display())]
    NoSharp { path: PathBuf },
    /// A blurred frame without its sharp one, or the other way about.
    #[error("{}: there is no `{missing}/` frame of this name", path.display())]
    NoPair { path: PathBuf, missing: &'static str },
    /// A scene that is shorter than a clip.
    #[error("{}: there are {there} frames, and a clip takes {wanted} ({how})", path.display())]
    TooShort { path: PathBuf, there: usize, wanted: usize, how: String },
    /// Too few scenes to train on some and evaluate on others.
    #[error("{}: there are {there} scenes, and {evaluated} of them are for evaluation, so that none is left to train on: \
             add scenes, or set data.eval_folder", path.display())]
    NothingToTrainOn { path: PathBuf, there: usize, evaluated: usize },
}

fn pixels([height, width]: [u32; 2]) -> String {
    format!("{width} x {height} pixels")
}

//! Completions, typed into a real zsh. `make test` runs this where there is one.

use crate::completions::{Shell, check};

#[test]
#[ignore = "needs zsh"]
fn what_is_typed_is_completed() {
    check(&mut Shell::zsh());
}

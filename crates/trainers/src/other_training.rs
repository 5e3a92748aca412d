//! Why a script would train otherwise with more accumulation, in words.

use crate::code::{Beat, Bound, Piece, Share, Uneven, WrongLoss};

pub(crate) fn wrong_loss(WrongLoss { at, share }: &WrongLoss<'_>, shown: &str) -> String {
    let at = at.place();
    match share {
        Share::PartOfSum => format!(
            "{at}: the loss is a sum over its samples and is divided by {shown} alone, so that another would change the gradients"
        ),
        _ => format!("{at}: the loss is not divided by {shown}, so that another would change the gradients"),
    }
}

pub(crate) fn uneven_words(uneven: &Uneven<'_>) -> String {
    let (piece, what) = match uneven {
        Uneven::Length(length) => {
            let (at, text) = (length.place(), first_line(*length));
            return format!(
                "{at}: the schedule of the learning rate is as long as there are micro-batches (`{text}`) and moves on with \
                 each update, so that more accumulation would change it"
            );
        }
        Uneven::Each(beat, piece) => (piece, beat),
    };
    let what = match what {
        Beat::Schedule => "the schedule of the learning rate moves on",
        Beat::Clipping => "gradients are clipped",
        Beat::Averaging => "the average of the weights is updated",
        Beat::Scaling => "gradients are scaled",
    };
    format!(
        "{}: {what} with every micro-batch (`{}`) and not with each update, so that more accumulation would change the training",
        piece.place(),
        first_line(*piece)
    )
}

fn first_line(piece: Piece<'_>) -> &str {
    piece.text().lines().next().unwrap_or_default()
}

pub(crate) fn bound_words(bound: &Bound<'_>) -> String {
    format!(
        "{}: the loop ends after a number of micro-batches (`{}`), so that with more accumulation it would make fewer updates",
        bound.at.place(),
        first_line(bound.number)
    )
}

pub(crate) fn rate_words(rate: Piece<'_>) -> String {
    format!(
        "{}: the learning rate follows the micro-batch (`{}`), so that a smaller one would train with another",
        rate.place(),
        first_line(rate)
    )
}

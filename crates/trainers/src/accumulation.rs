//! What more accumulation does in scripts: whether each update stays what it was, and as many are made.
//!
//! Gradients stay the same where the loss is divided by the number of micro-batches, by whatever name that goes, or where a
//! library that divides by itself is given it. Some scripts cut their batch into so many: there a smaller batch too would be
//! another training. A loop that ends after a number of micro-batches would make fewer updates.

use lowtide_config::{Config, Scope, Syntax, unquoted};

use crate::code::{
    Code, Given, Piece, Update, Way, WrongLoss, accumulates_in_context, check_losses, computes_gradients,
    counts_micro_batches, counts_processes, has_word, is_deepspeeds, is_one, is_product, is_shown, names_of,
    names_of_products, rate_by, uneven,
};
use crate::declaration::{Declaration, declarations_of, switches};
use crate::other_training::{bound_words, rate_words, uneven_words, wrong_loss};
use crate::preset::is_library;

/// What a number does that is called accumulation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accumulation {
    /// The loss is divided by it, or a library does so: with a smaller batch each update stays the same.
    Scales,
    /// The script cuts its batch into so many: that alone is what a retry changes.
    Cuts,
    /// Nothing shows: no gradients are computed in these scripts, or nothing there has its name.
    Unseen,
}

/// What cuts a batch into parts.
const CUTS: [&str; 4] = ["chunk", "split", "tensor_split", "array_split"];
/// What makes a number of micro-batches one of updates.
const COUNTS: [&str; 5] = ["ceil", "floor", "round", "int", "print"];
/// What shows a number to people.
const SHOWS: [&str; 7] = ["print", "info", "debug", "warning", "log", "write", "format"];
/// Pieces of a value that are looked at.
const LONGEST: usize = 100;
/// Values that say nothing.
const UNSET: [&str; 5] = ["None", "0", "-1", "", "False"];

/// What more accumulation does in the scripts among these configurations, where it has a name there; `batch` is the name of the
/// micro-batch, and `shown` what people know the number of accumulation by.
///
/// # Errors
///
/// Why another number would mean another training.
pub fn accumulation(
    configs: &[&Config],
    steps: &str,
    batch: Option<&str>,
    shown: &str,
) -> Result<Accumulation, String> {
    let code = Code::read(configs.iter().copied());
    let given = code.given();
    let names = names_of(steps, &given);
    let scaling = scaling(&code, &given, &names);
    if let Err(Some(wrong)) = &scaling
        && code.has_word(steps)
    {
        return Err(wrong_loss(wrong, shown));
    }
    let scales = scaling.is_ok();
    let batches = batch.map(|batch| names_of(batch, &given)).unwrap_or_default();
    let update = Update { steps: &names, batch: &batches, unset: &|| unset(configs) };
    if let Some(bound) = counts_micro_batches(&code, &given, &update).filter(|_| scales) {
        return Err(bound_words(&bound));
    }
    let by_itself = scales && !is_handed_on(&code, &names);
    if let Some(uneven) = by_itself.then(|| uneven(&code, &given, &names)).flatten() {
        return Err(uneven_words(&uneven));
    }
    if cuts_batch(&code, &batches, &names) {
        return Ok(Accumulation::Cuts);
    }
    if let Some(rate) = batch.and_then(|batch| rate_by(&code, &given, batch, steps)) {
        return Err(rate_words(rate));
    }
    Ok(match () {
        () if scales => Accumulation::Scales,
        () => Accumulation::Unseen,
    })
}

/// Whether the loss is divided by a number of a name, or a library that divides is given it.
pub(crate) fn scales(configs: &[&Config], steps: &str) -> bool {
    let code = Code::read(configs.iter().copied());
    let given = code.given();
    scaling(&code, &given, &names_of(steps, &given)).is_ok()
}

/// Whether the gradients of all micro-batches make those of the update.
///
/// # Errors
///
/// A loss of which they do not; none where nothing is to be seen.
fn scaling<'c>(code: &'c Code<'_>, given: &[Given<'c>], names: &[String]) -> Result<(), Option<WrongLoss<'c>>> {
    match () {
        () if is_handed_on(code, names) => Ok(()),
        () if computes_gradients(code).is_some() => check_losses(code, given, names),
        () if is_divided_by(code, names) => Ok(()),
        () => Err(None),
    }
}

/// Whether scripts cut a batch into so many micro-batches as a number says.
fn cuts_batch(code: &Code<'_>, batches: &[String], steps: &[String]) -> bool {
    let parents = code.parents();
    let is_by_steps =
        |piece: Piece<'_>| is_division(piece) && piece.field("right").is_some_and(|it| is_product(it, steps));
    let is_cut = |piece: &Piece<'_>| match piece.kind() {
        "augmented_assignment" if matches!(piece.part("operator"), "/=" | "//=") => {
            piece.field("left").is_some_and(|left| is_one(left, batches))
                && piece.field("right").is_some_and(|right| is_product(right, steps))
        }
        "binary_operator" => is_by_steps(*piece) && piece.field("left").is_some_and(|left| is_batch(left, batches)),
        "call" if CUTS.contains(&piece.callee()) => {
            let is_it = |value: Piece<'_>| is_one(value, steps) || is_by_steps(value);
            piece.arguments().into_iter().map(Piece::value).any(is_it)
        }
        _ => false,
    };
    let is_used = |piece: &Piece<'_>| {
        !parents.of(*piece).any(|outer| outer.kind() == "interpolation" || SHOWS.contains(&outer.callee()))
    };
    code.pieces().filter(is_cut).any(|piece| is_used(&piece))
}

/// Whether scripts divide the batch of a whole step by one that is computed at once: then they accumulate what is missing
/// by themselves.
#[must_use]
pub fn divides_whole(configs: &[&Config], whole: &str, part: &str) -> bool {
    let code = Code::read(configs.iter().copied());
    let names = [whole, part].map(|name| names_of_products(name, &code.given()));
    code.pieces().any(|piece| is_quotient(piece, &names))
}

/// The same, and that the loss is divided by the number that comes of it.
///
/// # Errors
///
/// The loss is not divided by it.
pub fn check_whole(configs: &[&Config], whole: &str, part: &str) -> Result<(), String> {
    let code = Code::read(configs.iter().copied());
    let given = code.given();
    let names = [whole, part].map(|name| names_of_products(name, &given));
    let divides = |it: &&Given<'_>| it.value.all().take(LONGEST).any(|piece| is_quotient(piece, &names));
    let Some(name) = given.iter().filter(|it| it.way == Way::Assigned).find(divides).map(|it| it.name) else {
        return Ok(());
    };
    match scaling(&code, &given, &names_of(name, &given)) {
        Err(Some(wrong)) => Err(wrong_loss(&wrong, name)),
        _ => Ok(()),
    }
}

/// Whether a piece is one of some numbers divided by one of others.
fn is_quotient(piece: Piece<'_>, [wholes, parts]: &[Vec<String>; 2]) -> bool {
    let is_it = |side: &str, names: &[String]| piece.field(side).is_some_and(|it| is_product(it, names));
    is_division(piece) && is_it("left", wholes) && is_it("right", parts)
}

fn is_division(piece: Piece<'_>) -> bool {
    piece.kind() == "binary_operator" && matches!(piece.part("operator"), "/" | "//")
}

/// Whether a value is a batch, of one process or of all.
fn is_batch(value: Piece<'_>, names: &[String]) -> bool {
    let is_number =
        |factor: Piece<'_>| factor.kind() == "integer" || counts_processes(factor.name().unwrap_or(factor.callee()));
    value.factors().any(|factor| is_one(factor, names))
        && value.factors().all(|factor| is_one(factor, names) || is_number(factor))
}

/// Whether a library is given what one of some names stands for, or divides by itself anyway.
fn is_handed_on(code: &Code<'_>, names: &[String]) -> bool {
    // A class of the script's own by such a name has a loop of its own, unless it is derived from the library's.
    let is_own = |class: &str| {
        let is_it = |piece: &Piece<'_>| piece.kind() == "class_definition" && piece.part("name") == class;
        code.pieces().filter(is_it).any(|piece| !piece.part("superclasses").contains("Trainer"))
    };
    let is_given = |call: Piece<'_>| {
        let is_it = |argument: &Piece<'_>| {
            let is_its = || names.iter().any(|name| name == argument.part("name"));
            argument.kind() == "keyword_argument" && (is_one(argument.value(), names) || is_its())
        };
        is_library(call.callee()) && call.arguments().iter().any(is_it) && !is_own(call.callee())
    };
    accumulates_in_context(code) || is_deepspeeds(code) || code.pieces().any(is_given)
}

/// Whether anything is divided by what one of some names stands for, and is no number of batches: all that shows where
/// gradients are computed in no way that is known.
fn is_divided_by(code: &Code<'_>, names: &[String]) -> bool {
    let has = |text: &str| names.iter().any(|name| has_word(text, name));
    let parents = code.parents();
    let is_counted = |piece: Piece<'_>| {
        let left = piece.field("left").into_iter().flat_map(Piece::all).take(LONGEST);
        let outer = parents.of(piece).take(3);
        left.map(Piece::callee).any(|name| name == "len") || outer.map(Piece::callee).any(|name| COUNTS.contains(&name))
    };
    let divides = |piece: &Piece<'_>| {
        matches!(piece.part("operator"), "/" | "/=")
            && has(piece.part("right"))
            && !piece.field("left").is_some_and(is_shown)
    };
    code.pieces().filter(divides).any(|piece| !is_counted(piece))
}

/// The options and constants that are left at a value that says nothing.
pub(crate) fn unset(configs: &[&Config]) -> Vec<String> {
    let says_nothing = |value: &str| UNSET.contains(&unquoted(value));
    let lines = configs.iter().filter(|config| config.syntax == Syntax::Command);
    let typed: Vec<&String> = lines.flat_map(|line| &line.settings).filter_map(|it| it.path.last()).collect();
    let scripts = configs.iter().copied().filter(|config| config.syntax == Syntax::Python);
    let is_unset = |it: &Declaration| it.default.as_ref().is_none_or(|default| says_nothing(&default.value));
    let switches = scripts.clone().flat_map(switches);
    let options = declarations_of(scripts.clone())
        .into_iter()
        .filter(|(_, it)| is_unset(it))
        .map(|(_, it)| it.name)
        .chain(switches);
    let constants = scripts.flat_map(|script| &script.settings);
    let constants = constants.filter(|it| it.scope == Scope::File && it.path.len() == 1 && says_nothing(&it.value));
    options.filter(|name| !typed.contains(&name)).chain(constants.map(|it| it.path.concat())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(script: &str) -> Config {
        Config::parse_as(Syntax::Python, "t.py", script).unwrap()
    }

    fn why(script: &str) -> Result<Accumulation, String> {
        accumulation(&[&read(script)], "grad_accum", Some("batch_size"), "--grad-accum=1")
    }

    #[test]
    fn a_loss_that_is_not_divided() {
        let detail =
            "t.py, line 1: the loss is not divided by --grad-accum=1, so that another would change the gradients";
        for script in [
            "loss.backward()\nif (i + 1) % a.grad_accum == 0: opt.step()\n",
            "loss.backward()\nshown += loss.item() / a.grad_accum\n",
            // A number of updates, which is none of the loss.
            "loss.backward()\nupdates = math.ceil(len(loader) / a.grad_accum)\n",
            "(loss / updates).backward()\nupdates = len(loader) / a.grad_accum\n",
            // What is shown.
            "loss.backward()\nrunning += loss.item()\nif i % a.grad_accum == 0: print(running / a.grad_accum)\n",
            "loss.backward()\nlog(loss=loss / a.grad_accum)\n",
            // A class of the script's own.
            "loss.backward()\nclass Trainer: pass\nTrainer(steps=a.grad_accum)\n",
            // What the loss is computed with.
            "criterion(out, y / a.grad_accum).backward()\n",
            // What only has the name of a library, or of a method of one.
            "# TODO: try deepspeed\nloss.backward()\nif i % a.grad_accum == 0: opt.step()\n",
            "\nimport deepspeed\nif a.deepspeed: loss.backward()\nopt.step(a.grad_accum)\n",
            "evaluator.accumulate()\nloss.backward()\nopt.step(a.grad_accum)\n",
        ] {
            let line = script.lines().position(|line| line.contains("backward")).unwrap() + 1;
            let detail = detail.replace("line 1", &format!("line {line}"));
            assert_eq!(why(script), Err(detail), "{script}");
        }
    }

    #[test]
    fn a_loss_that_is_divided_under_any_name() {
        for script in [
            "(loss / a.grad_accum).backward()\n",
            "loss /= a.grad_accum\nloss.backward()\n",
            "loss = loss / cfg['grad_accum']\nscaler.scale(loss).backward()\n",
            "n = a.grad_accum\nloss = loss / n\nloss.backward()\n",
            "m, n = a.m, a.grad_accum\nloss.div_(n).backward()\n",
            "def train(model, steps): (f(model) / steps).backward()\ntrain(net, a.grad_accum)\n",
            "def train(*, steps): (f() * (1.0 / steps)).backward()\ntrain(steps=max(1, a.grad_accum))\n",
            "self.steps = a.grad_accum\nloss = loss / self.steps\nloss.backward()\n",
            "x = Accelerator(gradient_accumulation_steps=a.grad_accum)\nx.backward(loss)\n",
            "with x.accumulate(net), amp(): x.backward(loss)\nprint(a.grad_accum)\n",
            "with x.accumulate(net) if a.grad_accum > 1 else nullcontext(): x.backward(loss)\n",
            "net, opt, _, _ = deepspeed.initialize(args=a, model=net)\nnet.backward(loss)\nprint(a.grad_accum)\n",
            "import deepspeed as ds\nnet = ds.initialize(a, net)[0]\nnet.backward(loss)\nprint(a.grad_accum)\n",
            "loss = f(x)\nif a.grad_accum > 1: loss = loss / a.grad_accum\naccelerator.backward(loss)\n",
            "losses = f(x)\nloss = sum(l / a.grad_accum for l in losses)\nloss.backward()\n",
            "def compute(x): return f(x).mean() / a.grad_accum\nloss, out = compute(x)\nloss.backward()\n",
            "share = 1 / a.grad_accum\nloss = share * criterion(x, y)\nloss.backward()\n",
            "loss.backward()\nfor p in params: p.grad /= a.grad_accum\n",
            "loss.backward()\nfor p in params: p.grad.data.div_(a.grad_accum)\n",
            "loss = f(x) / a.grad_accum if train else f(x)\nself.manual_backward(loss)\n",
            "loss, y = f(x)\nloss = torch.div(loss, a.grad_accum)\nloss.backward()\n",
            "terms.append(f(x) / a.grad_accum)\nsum(terms).backward()\n",
            "with amp.scale_loss(loss, opt) as scaled: scaled.backward()\nloss = f(x) / a.grad_accum\n",
            "loss_scaler(loss, opt)\nother.backward()\nloss /= a.grad_accum\n",
            "def steps(self): return self.a.grad_accum\n(loss / self.steps).backward()\n",
            "class Own(Trainer): pass\nTrainer(accum=a.grad_accum)\nloss.backward()\n",
        ] {
            assert_eq!(why(script), Ok(Accumulation::Scales), "{script}");
        }
    }

    #[test]
    fn what_is_divided_elsewhere_or_later_is_not_the_loss() {
        let train = |body: &str| {
            let lines: Vec<String> = body.lines().map(|line| format!("    {line}\n")).collect();
            format!("def train(a):\n{}", lines.concat())
        };
        for script in [
            train("loss = f(x)\nloss.backward()\nloss = loss / a.grad_accum\nprint(loss)"),
            train("loss = f(x)\nloss.backward()")
                + "def validate(a):\n    loss = total / a.grad_accum\n    return loss\n",
            train("loss = f(x) / a.grad_accum\nloss.backward()\naux = g(x)\naux.backward()"),
            train("reg = penalty(net)\nloss = f(x) / a.grad_accum + reg\nloss.backward()"),
            train("loss = f(x) / a.grad_accum\nloss = f(y)\nloss.backward()"),
            train("losses = [f(x) / a.grad_accum, g(x)]\nsum(losses).backward()"),
            train("out = net(x)\nloss = out.loss\nloss.backward()\nloss = out.loss / a.grad_accum"),
        ] {
            assert!(why(&script).unwrap_err().contains("is not divided by --grad-accum=1"), "{script}");
        }
        for script in [
            train("loss = f(x)\nif a.grad_accum > 1:\n    loss = loss / a.grad_accum\nloss.backward()"),
            train("if a.amp:\n    scaler.scale(f(x) / a.grad_accum).backward()\nelse:\n    f(x).backward()"),
            train("loss = 0\nfor x in xs:\n    loss += f(x) / a.grad_accum\nloss.backward()"),
            train("losses = {}\nlosses['a'] = f(x) / a.grad_accum\nsum(losses.values()).backward()"),
            train("loss = f(x)\nloss = loss.mean() / a.grad_accum + 0.0 * sum(p.sum() for p in net.parameters())\nloss.backward()"),
            train("loss = g(x, a.weight) * a.weight / a.grad_accum\nscaler = GradScaler()\nscaler.scale(loss).backward()"),
            // Another training of the same script.
            train("for x in a:\n    f(x).backward()\nfor x in b:\n    (f(x) / a.grad_accum).backward()"),
            format!("{}def warm_up(a):\n    f(x).backward()\n", train("(f(x) / a.grad_accum).backward()")),
            // Through a function, an object and what they return.
            "def step(net, x):\n    return {'loss': net(x) / a.grad_accum}\nout = step(net, x)\nout['loss'].backward()\n".into(),
            "class Scaler:\n    def __call__(self, loss):\n        self.s.scale(loss).backward()\nloss = f(x)\n\
             loss /= a.grad_accum\nloss_scaler(loss, opt)\n".into(),
            "def update(loss):\n    loss.backward()\nupdate(f(x) / a.grad_accum)\n".into(),
        ] {
            assert_eq!(why(&script), Ok(Accumulation::Scales), "{script}");
        }
    }

    #[test]
    fn sums_over_samples() {
        let halved = "t.py, line 3: the loss is a sum over its samples and is divided by --grad-accum=1 alone, so that another would \
                      change the gradients";
        for (made, loss, expected) in [
            ("f = MSELoss(reduction='sum')", "f(x, y) / a.grad_accum", Err(halved)),
            ("f = MSELoss(reduction='sum').to(d)", "f(x, y) / (a.grad_accum * world_size)", Err(halved)),
            ("f = MSELoss(reduction='sum')", "f(x, y) / len(x) / a.grad_accum", Ok(Accumulation::Scales)),
            ("f = MSELoss(reduction='sum')", "f(x, y) / a.grad_accum / x.size(0)", Ok(Accumulation::Scales)),
            ("f = MSELoss(reduction='sum')", "f(x, y) / (a.grad_accum * a.batch_size)", Ok(Accumulation::Scales)),
            // The sums of all micro-batches are that of the update.
            ("f = MSELoss(reduction='sum')", "f(x, y)", Ok(Accumulation::Scales)),
            ("f = MSELoss(reduction='mean')", "f(x, y) / a.grad_accum", Ok(Accumulation::Scales)),
            ("", "F.cross_entropy(x, y, reduction='sum') / a.grad_accum", Err(halved)),
        ] {
            let script = format!("{made}\nloss = {loss}\nloss.backward()\nif i % a.grad_accum == 0: opt.step()\n");
            assert_eq!(why(&script).as_ref().map_err(|why| &**why), expected.as_ref().map_err(|why| *why), "{script}");
        }
    }

    #[test]
    fn a_loop_that_is_not_to_be_seen() {
        for script in
            ["import engine\nengine.train(a)\n", "import engine\nloss.backward()\n", "n = len(x) / grad_accum\n"]
        {
            assert_eq!(why(script), Ok(Accumulation::Unseen), "{script}");
        }
        // Of JAX and others.
        assert_eq!(why("grads = map(lambda g: g / grad_accum, grads)\n"), Ok(Accumulation::Scales));
    }

    #[test]
    fn loops_that_count_micro_batches() {
        let turn = "(loss / a.grad_accum).backward()";
        let step = |head: &str, counter: &str, more: &str| {
            let indent = " ".repeat(head.lines().last().map_or(0, |last| last.len() - last.trim_start().len() + 2));
            format!(
                "{head}\n{indent}{turn}\n{indent}if ({counter} + 1) % a.grad_accum == 0: opt.step()\n{indent}{more}\n"
            )
        };
        for (head, counter, more, bound) in [
            ("for i in range(a.max_steps):", "i", "", Some("range(a.max_steps)")),
            ("for i in tqdm(range(10000)):", "i", "", Some("range(10000)")),
            ("for i, x in zip(range(n), loader):", "i", "", Some("range(n)")),
            ("for i, x in enumerate(islice(loader, 100)):", "i", "", Some("islice(loader, 100)")),
            ("while done < a.max_steps:", "done", "done += 1", Some("done < a.max_steps")),
            ("for i, x in enumerate(loader):", "i", "if i >= 500: break", Some("i >= 500")),
            ("while done < n:\n  for i, x in enumerate(loader):", "i", "done += 1", Some("done < n")),
            ("for i, x in enumerate(loader):", "i", "", None),
            ("for i in range(len(loader)):", "i", "", None),
            ("n = len(data) // a.batch_size\nfor i in range(n):", "i", "", None),
            ("for i in range(a.updates * a.grad_accum):", "i", "", None),
            ("for epoch in range(a.epochs):\n  for i, x in enumerate(loader):", "i", "", None),
            ("for i, x in enumerate(loader):", "i", "if updates >= a.max_steps: break", None),
            ("for i in range(a.max_steps):", "i", "if a.debug and i > 5: break", Some("range(a.max_steps)")),
            (
                "p.add_argument('--debug', action='store_true')\nfor i, x in enumerate(loader):",
                "i",
                "if a.debug and i > 5: break",
                None,
            ),
            // Nobody set a limit.
            (
                "p.add_argument('--most', default=None)\nfor i, x in enumerate(loader):",
                "i",
                "if a.most and i > a.most: break",
                None,
            ),
        ] {
            let script = step(head, counter, more);
            let found = why(&script).err();
            let expected = bound.map(|bound| format!("(`{bound}`)"));
            assert_eq!(found.is_some(), expected.is_some(), "{script} {found:?}");
            assert!(expected.is_none_or(|expected| found.unwrap().contains(&expected)), "{script}");
        }
        let counted = "seen, n = 0, 0\nfor x in loader:\n  (loss / a.grad_accum).backward()\n  n += 1\n  seen += 1\n  \
                       if n == a.grad_accum:\n    opt.step()\n    n = 0\n";
        assert_eq!(why(counted), Ok(Accumulation::Scales));
        for counted in [counted.to_owned(), counted.replace("==", ">=")] {
            let found = why(&format!("{counted}  if seen >= a.max_steps: break\n")).unwrap_err();
            assert!(found.contains("(`seen >= a.max_steps`)"), "{found}");
        }
        let detail = "t.py, line 1: the loop ends after a number of micro-batches (`range(9)`), so that with more \
                      accumulation it would make fewer updates";
        assert_eq!(why(&step("for i in range(9):", "i", "")), Err(detail.to_owned()));
    }

    #[test]
    fn learning_rates_that_follow_the_micro_batch() {
        let turn = "(f(x) / a.grad_accum).backward()\nif (i + 1) % a.grad_accum == 0: opt.step()\n";
        for (rate, is_followed) in [
            ("SGD(p, lr=a.lr * a.batch_size / 256)", true),
            ("SGD(p, lr=a.lr * math.sqrt(a.batch_size * world / 256))", true),
            ("scale = a.batch_size / 256\nopt = SGD(p, lr=a.lr * scale)", true),
            ("a.lr *= a.batch_size * world / 256", true),
            ("groups = [{'params': p, 'lr': a.lr * (a.batch_size / 256) ** 0.5}]", true),
            ("def rate(base, n): return base * n / 256\nbase_lr = rate(a.lr, a.batch_size)", true),
            ("each = a.batch_size * a.grad_accum * world\na.lr = a.base * each / 256", false),
            ("SGD(p, lr=a.lr * a.batch_size * a.grad_accum / 256)", false),
            ("SGD(p, lr=a.lr * world / a.batch_size)", false),
            ("SGD(p, lr=a.lr)\nloader = DataLoader(d, batch_size=a.batch_size)", false),
            ("micro = a.batch_size // a.grad_accum\nopt = SGD(p, lr=a.lr * a.batch_size / 256)", false),
        ] {
            let found = why(&format!("{rate}\n{turn}")).err();
            assert_eq!(found.is_some(), is_followed, "{rate}: {found:?}");
        }
        let detail = "t.py, line 1: the learning rate follows the micro-batch (`a.lr * a.batch_size`), so that a smaller one would \
                      train with another";
        assert_eq!(why(&format!("SGD(p, lr=a.lr * a.batch_size)\n{turn}")), Err(detail.to_owned()));
    }

    #[test]
    fn what_belongs_to_an_update_happens_with_each() {
        const TURN: &str = "if (i + 1) % a.grad_accum == 0:";
        let looped = |before: &str, inside: &str, each: &str, after: &str| {
            format!(
                "{before}\nfor epoch in range(9):\n  for i, x in enumerate(loader):\n    (f(x) / a.grad_accum).backward()\n    \
                 {TURN}\n      opt.step()\n      {inside}\n    {each}\n  {after}\n"
            )
        };
        for (each, what) in [
            ("scheduler.step()", "the schedule of the learning rate moves on"),
            ("if a.warm_up: self.lr_scheduler.step()", "the schedule of the learning rate moves on"),
            ("if a.clip: clip_grad_norm_(net.parameters(), a.clip)", "gradients are clipped"),
            ("model_ema.update(net)", "the average of the weights is updated"),
            ("for p in net.parameters(): p.grad.mul_(c)", "gradients are scaled"),
            ("multiply(net.parameters(), c)", "gradients are scaled"),
        ] {
            let own = "def multiply(ps, c):\n  for p in ps:\n    if p.grad is not None: p.grad.data.mul_(c)";
            let found = why(&looped(own, "pass", each, "pass")).expect_err(each);
            assert!(found.contains(&format!("{what} with every micro-batch")), "{found}");
            assert_eq!(why(&looped(own, each, "pass", "pass")), Ok(Accumulation::Scales), "{each}");
            assert_eq!(why(&looped(own, "pass", "pass", each)), Ok(Accumulation::Scales), "{each}");
            let again =
                format!("{TURN} {each}").replace(": if a.", " and a.").replace(": for p in net.parameters(): p", ": q");
            assert_eq!(why(&looped(own, "pass", &again, "pass")), Ok(Accumulation::Scales), "{again}");
        }
        // One that is told where it is, and what is no schedule.
        for each in [
            "scheduler.step(epoch + i / len(loader))",
            "bar.update()",
            "meter.update(loss.item())",
            "x = noise_scheduler.step(a, b)",
        ] {
            assert_eq!(why(&looped("", "pass", each, "pass")), Ok(Accumulation::Scales), "{each}");
        }
        let passes = "for i, x in enumerate(loader):\n  (f(x) / a.grad_accum).backward()\n  last = (i + 1) % a.grad_accum == 0\n  \
                      if not last: continue\n  clip_grad_norm_(p)\n  opt.step()\n  scheduler.step()\n";
        assert_eq!(why(passes), Ok(Accumulation::Scales));
    }

    #[test]
    fn schedules_as_long_as_there_are_micro_batches() {
        let looped = |made: &str, inside: &str, after: &str| {
            format!(
                "{made}\nfor epoch in range(9):\n  for i, x in enumerate(loader):\n    (f(x) / a.grad_accum).backward()\n    \
                 if (i + 1) % a.grad_accum == 0:\n      opt.step()\n      {inside}\n  {after}\n"
            )
        };
        for (made, is_long) in [
            ("s = get_linear_schedule_with_warmup(opt, 100, len(loader) * a.epochs)", true),
            ("n = len(loader) * 9\ns = CosineAnnealingLR(opt, T_max=int(n))", true),
            ("s = OneCycleLR(opt, 0.1, steps_per_epoch=math.ceil(len(loader) / a.grad_accum), epochs=9)", false),
            ("n = len(loader) // a.grad_accum\ns = get_scheduler('cosine', opt, 0, n * a.epochs)", false),
            ("net = Net(len(classes))\nopt = SGD(net.parameters())\ns = CosineAnnealingLR(opt, a.max_steps)", false),
        ] {
            let found = why(&looped(made, "scheduler.step()", "pass"));
            assert_eq!(found.is_err(), is_long, "{made} {found:?}");
            assert!(found.err().is_none_or(|why| why.contains("is as long as there are micro-batches")));
            assert_eq!(why(&looped(made, "pass", "scheduler.step()")), Ok(Accumulation::Scales), "{made}");
        }
    }

    #[test]
    fn batches_that_are_cut_by_accumulation() {
        let cuts =
            |script: &str| accumulation(&[&read(script)], "accum", Some("batch_size"), "it") == Ok(Accumulation::Cuts);
        for script in [
            "DataLoader(d, batch_size=args.batch_size // args.accum)\n",
            "micro = int(args.batch_size / args.accum)\n",
            "b, n = args.batch_size, args.accum\nmicro = b // n\n",
            "micro = (args.batch_size // (args.accum * world))\n",
            "args.batch_size //= args.accum\n",
            "args.batch_size = int(args.batch_size / args.accum)\n",
            "micro = args.batch_size * world_size // args.accum\n",
            "for part in x.chunk(args.accum): pass\n",
            "for part in torch.split(x, len(x) // args.accum): pass\n",
            "def load(size, n): return DataLoader(d, size // n)\nload(args.batch_size, args.accum)\n",
        ] {
            assert!(cuts(script), "{script}");
        }
        for script in [
            "updates = len(d) // args.batch_size // args.accum\n",
            "updates = math.ceil(len(loader) / args.accum)\n",
            "loss = loss * args.batch_size / args.accum\n",
            "print(f'{args.batch_size // args.accum} at once')\n",
            "logger.info('%d', args.batch_size / args.accum)\n",
            "accum = total // args.batch_size\n",
            "n = int(len(d) / args.batch_size) // args.accum\n",
        ] {
            assert!(!cuts(script), "{script}");
        }
    }

    #[test]
    fn a_whole_batch_that_is_divided_by_a_part_of_it() {
        let divides = |script: &str| divides_whole(&[&read(script)], "total", "micro");
        for script in [
            "steps = args.total // args.micro\n",
            "tokens = args.micro * length\neach = tokens * world\nsteps = args.total // each\n",
            "steps = math.ceil(args.total / (args.micro * world))\n",
        ] {
            assert!(divides(script), "{script}");
        }
        for script in ["lr = args.lr * args.total / 256\n", "n = args.micro // args.total\n", "print(args.total)\n"] {
            assert!(!divides(script), "{script}");
        }
    }

    #[test]
    fn no_text_is_too_deep_or_too_odd() {
        let deep = "(".repeat(20_000);
        for text in [
            format!("x = {deep}"),
            format!("loss = {}1{}\nloss.backward()\n", "(".repeat(5000), ")".repeat(5000)),
            format!("(loss{}).backward()\n", " / grad_accum".repeat(5000)),
            format!("loss{}.backward()\n", ".mean()".repeat(5000)),
            format!("loss = f(x)\n{}loss.backward()\n", "loss = loss + f(loss)\n".repeat(5000)),
            format!("{}opt.step()\n", "if i % grad_accum == 0:\n".repeat(300)),
        ] {
            let config = read(&text);
            drop(accumulation(&[&config], "grad_accum", Some("batch_size"), "it"));
            assert!(!divides_whole(&[&config], "total", "grad_accum"));
        }
    }
}

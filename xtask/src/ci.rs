//! `xtask ci`: everything CI runs, in order, stopping at the first failure.

use std::time::Instant;

use steps::{STEPS, Step};

use crate::{Failure, output, workspace};

mod steps;

/// Runs the steps that `arguments` leave in.
pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    if arguments == ["--list"] {
        STEPS
            .iter()
            .for_each(|step| output::say(format_args!("{:16} {}", step.name, step.title)));
        return Ok(());
    }
    let chosen = choose(arguments)?;
    let started = Instant::now();
    let mut seconds = Vec::new();
    for step in chosen {
        output::say(heading(step, started.elapsed().as_secs()));
        let step_started = Instant::now();
        run_step(step).map_err(|cause| Failure::Step {
            name: step.name,
            cause: Box::new(cause),
        })?;
        seconds.push((step.name, step_started.elapsed().as_secs()));
    }
    output::say(summary(&seconds, started.elapsed().as_secs()));
    Ok(())
}

fn run_step(step: &Step) -> Result<(), Failure> {
    for mut command in (step.commands)()? {
        output::say(format_args!("$ {}", workspace::command_line(&command)));
        workspace::run(&mut command)?;
    }
    Ok(())
}

fn heading(step: &Step, elapsed_s: u64) -> String {
    format!("\n== {}: {} (after {elapsed_s} s)", step.name, step.title)
}

fn summary(seconds: &[(&str, u64)], total_s: u64) -> String {
    let rows = seconds
        .iter()
        .map(|(name, step_s)| format!("{name:16} {step_s:5} s\n"));
    format!(
        "\n== ci passed\n{}{:16} {total_s:5} s",
        rows.collect::<String>(),
        "total"
    )
}

/// The steps to run: those of `--only`, or all, without those of `--skip`.
fn choose(arguments: &[String]) -> Result<Vec<&'static Step>, Failure> {
    let (mut only, mut skip) = (Vec::new(), Vec::new());
    for pair in arguments.chunks(2) {
        match pair {
            [flag, name] if flag == "--only" => only.push(known(name)?),
            [flag, name] if flag == "--skip" => skip.push(known(name)?),
            _ => return Err(usage(&format!("not understood: {}", pair.join(" ")))),
        }
    }
    let is_chosen =
        |step: &&Step| (only.is_empty() || only.contains(&step.name)) && !skip.contains(&step.name);
    Ok(STEPS.iter().filter(is_chosen).collect())
}

fn known(name: &str) -> Result<&'static str, Failure> {
    let step = STEPS.iter().find(|step| step.name == name);
    step.map(|step| step.name)
        .ok_or_else(|| usage(&format!("no step is called `{name}`")))
}

fn usage(why: &str) -> Failure {
    let names: Vec<_> = STEPS.iter().map(|step| step.name).collect();
    Failure::Usage {
        text: format!("ci: {why}; the steps are {}", names.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(arguments: &[&str]) -> Result<Vec<&'static str>, String> {
        let arguments: Vec<String> = arguments.iter().map(|word| (*word).into()).collect();
        let chosen = choose(&arguments).map_err(|failure| failure.to_string())?;
        Ok(chosen.into_iter().map(|step| step.name).collect())
    }

    #[test]
    fn only_and_skip_choose_steps_in_order() {
        assert_eq!(names(&[]).unwrap().len(), STEPS.len());
        assert_eq!(
            names(&["--only", "tidy", "--only", "fmt"]).unwrap(),
            ["fmt", "tidy"]
        );
        assert!(!names(&["--skip", "cuda"]).unwrap().contains(&"cuda"));
        assert!(
            names(&["--only", "tidy", "--skip", "tidy"])
                .unwrap()
                .is_empty()
        );
    }

    #[test]
    fn unknown_words_are_refused_by_name() {
        assert!(
            names(&["--only", "tests"])
                .unwrap_err()
                .contains("no step is called `tests`")
        );
        assert!(
            names(&["--fast"])
                .unwrap_err()
                .contains("not understood: --fast")
        );
        assert!(
            names(&["--skip"])
                .unwrap_err()
                .contains("not understood: --skip")
        );
    }

    #[test]
    fn headings_and_the_summary_state_seconds() {
        assert!(heading(&STEPS[0], 7).ends_with("(after 7 s)"));
        assert!(
            summary(&[("fmt", 2)], 3)
                .contains("fmt                  2 s\ntotal                3 s")
        );
    }
}

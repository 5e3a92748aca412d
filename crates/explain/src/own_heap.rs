//! Heaps with a limit of their own, whatever the machine has: where they cannot grow, it is that limit that is named.

use lowtide_oom::{Engine, Oom, Place};
use serde::Serialize;

use crate::log::{Sign, Signs};

/// A heap of a language or a program that has a limit of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum OwnHeap {
    /// Java's heap of objects: `-Xmx`.
    Java,
    /// Java's classes: `-XX:MaxMetaspaceSize`.
    JavaClasses,
    /// The same before Java 8, which knows no other flag for them: `-XX:MaxPermSize`.
    JavaPermanent,
    /// An array of more elements than Java can count, whatever the heap.
    JavaArray,
    /// Java's buffers outside its heap: `-XX:MaxDirectMemorySize`.
    JavaBuffers,
    /// The heap of a driver or an executor of Spark.
    Spark,
    /// V8's old space: `--max-old-space-size`.
    Node,
    /// R's vectors, at their limit: `R_MAX_VSIZE`.
    R,
    /// R's vectors, where the text says no more than that one was refused: `memory.limit()`, or the machine.
    RVector,
    /// MATLAB's preference for the largest array.
    Matlab,
}

impl OwnHeap {
    /// The heap that refused, where it was one of these and not the system below it.
    pub(crate) fn of(oom: &Oom, message: &str, signs: &Signs) -> Option<Self> {
        let has = |words: &[&str]| words.iter().any(|words| message.contains(words));
        match oom.engine {
            _ if oom.place != Place::Host => None,
            // What the system refused to the JVM itself.
            Engine::Java if has(&["native thread", "Native memory", "insufficient memory", "failed to map"]) => None,
            Engine::Java if has(&["array size exceeds VM limit"]) => Some(Self::JavaArray),
            Engine::Java if has(&["PermGen"]) => Some(Self::JavaPermanent),
            Engine::Java if has(&["Metaspace"]) => Some(Self::JavaClasses),
            Engine::Java if has(&["irect buffer memory", "irect memory"]) => Some(Self::JavaBuffers),
            Engine::Java if has(&["spark", "Spark"]) || signs.has(Sign::Spark) => Some(Self::Spark),
            Engine::Java => Some(Self::Java),
            Engine::Node => Some(Self::Node),
            Engine::R if has(&["vector memory"]) => Some(Self::R),
            Engine::R => Some(Self::RVector),
            Engine::Matlab if has(&["maximum array size"]) => Some(Self::Matlab),
            _ => None,
        }
    }

    /// The cause in plain words.
    pub(crate) const fn words(self) -> &'static str {
        match self {
            Self::Java => "the limit of the Java heap was reached (-Xmx)",
            Self::JavaClasses => "the limit of Java's memory for classes was reached (-XX:MaxMetaspaceSize)",
            Self::JavaPermanent => "the limit of Java's memory for classes was reached (-XX:MaxPermSize)",
            Self::JavaArray => "an array has more elements than Java allows, however large the heap",
            Self::JavaBuffers => "the limit of Java's buffers outside its heap was reached (-XX:MaxDirectMemorySize)",
            Self::Spark => "the limit of a Spark heap was reached (spark.driver.memory or spark.executor.memory)",
            Self::Node => "the limit of Node's heap was reached (--max-old-space-size)",
            Self::R => "R's own memory limit was reached (R_MAX_VSIZE)",
            Self::RVector => "R's own memory limit was reached, or the machine has no more",
            Self::Matlab => "MATLAB's limit on the size of an array was reached",
        }
    }

    /// What happened, as a sentence whose subject is who has the heap: the machine may have had much memory left.
    #[must_use]
    pub const fn happening(self) -> &'static str {
        match self {
            Self::Java => "Java reached its heap limit",
            Self::JavaClasses | Self::JavaPermanent => "Java reached its limit for classes",
            Self::JavaArray => "Java cannot make an array that long",
            Self::JavaBuffers => "Java reached its limit for buffers outside its heap",
            Self::Spark => "Spark reached a heap limit",
            Self::Node => "Node reached its heap limit",
            Self::R => "R reached its memory limit",
            Self::RVector => "R got no memory for a vector",
            Self::Matlab => "MATLAB reached its limit for an array",
        }
    }

    /// Why it is that, as a sentence.
    pub(crate) const fn reason(self) -> &'static str {
        match self {
            Self::Java => {
                "the Java heap could not grow beyond its own limit, by default a quarter of the machine's memory, whatever \
                 the machine had left"
            }
            Self::JavaArray => {
                "an array of Java has at most 2,147,483,647 elements, or one or two fewer, whatever the heap and the machine have"
            }
            Self::JavaClasses | Self::JavaPermanent | Self::JavaBuffers => {
                "a part of Java's memory could not grow beyond its own limit, whatever the machine had left"
            }
            Self::Spark => {
                "the heap of a driver or an executor could not grow beyond its own limit (1 GB unless it is set), whatever the \
                 machine had left"
            }
            Self::Node => "Node's heap could not grow beyond its own limit, whatever the machine had left",
            Self::R => {
                "R's vectors could not grow beyond R's own limit (mem.maxVSize()), whatever the machine had left"
            }
            Self::RVector => {
                "R got no memory for a vector: by its own limit (mem.maxVSize(), memory.limit() on Windows before R 4.2), or \
                 because the machine had no more"
            }
            Self::Matlab => "the array is larger than MATLAB's preferences allow, whatever the machine had left",
        }
    }

    /// How it is given more.
    pub(crate) const fn advice(self) -> &'static str {
        match self {
            Self::Java => {
                "Give the Java machine a larger heap, up to what the machine has: -Xmx16g behind java, _JAVA_OPTIONS=-Xmx16g, or the \
                 program's own option for it"
            }
            Self::JavaClasses => "Let Java keep more classes: -XX:MaxMetaspaceSize=1g behind java, or no limit on them",
            Self::JavaPermanent => "Let Java keep more classes: -XX:MaxPermSize=512m behind java (Java 7 and older)",
            Self::JavaArray => {
                "Make the array shorter, or several of it: read, collect or buffer the data in parts; a larger heap (-Xmx) does not help"
            }
            Self::JavaBuffers => "Let Java have more buffers outside its heap: -XX:MaxDirectMemorySize=8g behind java",
            Self::Spark => {
                "Give Spark larger heaps, up to what the machines have: --driver-memory 16g for what the driver collects, \
                 --executor-memory 16g for tasks (spark.driver.memory, spark.executor.memory), or -Xmx for Java by itself; or \
                 smaller partitions, and fewer cores for each executor"
            }
            Self::Node => "Give Node a larger heap: NODE_OPTIONS=--max-old-space-size=8192, in MB",
            Self::R | Self::RVector => {
                "Let R have more: memory.limit(size = 16000) on Windows before R 4.2, R_MAX_VSIZE=32Gb in .Renviron elsewhere"
            }
            Self::Matlab => {
                "Allow larger arrays: Preferences, Workspace, Maximum array size; an array above the machine's memory swaps"
            }
        }
    }

    /// Whether data is what fills it, and not classes.
    pub(crate) const fn holds_data(self) -> bool {
        !matches!(self, Self::JavaClasses | Self::JavaPermanent)
    }

    /// Whether it is a limit that somebody may set, and the text says so.
    pub(crate) const fn is_limit(self) -> bool {
        !self.is_open() && !matches!(self, Self::JavaArray)
    }

    /// Whether the text leaves open that it was the machine's memory.
    pub(crate) const fn is_open(self) -> bool {
        matches!(self, Self::RVector)
    }
}

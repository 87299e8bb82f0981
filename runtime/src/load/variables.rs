//! Data of modules for the linker: an object file of LLVM's, or data laid out without LLVM.

use std::borrow::Cow;

use tracing::debug;
use uruk_codegen::laid::{Data, Form, Holds, Place};
use uruk_link::{Access, Content, LinkError, Object, Variables, Width};

use crate::code::module::Module;

/// An object for the link, with its name.
pub(super) struct Part<'a> {
    pub(super) name: String,
    /// Index of its input.
    pub(super) file: usize,
    pub(super) content: PartContent<'a>,
}

/// The form of an object's content.
pub(super) enum PartContent<'a> {
    /// An object file.
    File(Cow<'a, [u8]>),
    /// Data laid out without LLVM.
    Laid(Data),
}

/// The parsed source of an object.
pub(super) enum Ready<'p> {
    File(&'p str, &'p [u8]),
    Laid(Variables<'p>),
}

impl<'a> Part<'a> {
    pub(super) fn of_file(file: usize, name: String, bytes: Cow<'a, [u8]>) -> Part<'a> {
        Part {
            name,
            file,
            content: PartContent::File(bytes),
        }
    }

    pub(super) fn ready(&self) -> Result<Ready<'_>, LinkError> {
        match &self.content {
            PartContent::File(bytes) => Ok(Ready::File(&self.name, bytes)),
            PartContent::Laid(data) => variables(&self.name, data).map(Ready::Laid),
        }
    }
}

impl Ready<'_> {
    pub(super) fn object(&self) -> Result<Object<'_>, LinkError> {
        match self {
            Ready::File(name, bytes) => Object::parse(name, bytes),
            Ready::Laid(variables) => Ok(variables.object()),
        }
    }
}

/// The data of a module laid out without LLVM; `None` if LLVM is to compile it.
pub(super) fn lay_out(module: &Module) -> Option<Option<Data>> {
    match module.readers.data(&module.plan()) {
        Ok(data) => Some(data),
        Err(cause) => {
            let file = module.readers.bitcode().name();
            debug!(file, %cause, "LLVM compiles the data");
            None
        }
    }
}

fn variables<'d>(name: &'d str, data: &'d Data) -> Result<Variables<'d>, LinkError> {
    let mut variables = Variables::new(name);
    for section in &data.sections {
        let (zeros, access) = match section.holds {
            Holds::Variables => (false, Access::Write),
            Holds::Constants => (false, Access::Read),
            // A section of that name is sealed once it is relocated.
            Holds::Addresses => (false, Access::Write),
            Holds::Zeros => (true, Access::Write),
            Holds::ThreadLocals => (false, Access::Thread),
            Holds::ThreadLocalZeros => (true, Access::Thread),
        };
        let content = match zeros {
            true => Content::Zeros(section.size),
            false => Content::Bytes(&section.bytes),
        };
        variables.section(&section.name, content, section.align, access)?;
    }
    for symbol in &data.symbols {
        match symbol.place {
            Place::Outside => variables.external(&symbol.name, symbol.is_weak),
            Place::Common(align) => variables.common(&symbol.name, symbol.size, align)?,
            Place::In(section, at) => {
                variables.define(&symbol.name, section, at, symbol.size, symbol.is_weak)?;
            }
        }
    }
    for (section, it) in data.sections.iter().enumerate() {
        for field in &it.fields {
            let width = match field.form {
                Form::Address => Width::Address,
                Form::Distance => Width::Distance,
                Form::LongDistance => Width::LongDistance,
            };
            variables.fill(section as u32, field.at, width, field.symbol, field.addend)?;
        }
    }
    Ok(variables)
}

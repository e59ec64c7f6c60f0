//! What one version of a package breaks of another.
//!
//! What is only added is no difference. A field or a value may go if its number and its name are
//! reserved: nobody gives them another meaning then. Whether programs do without it is theirs to
//! know.

use std::collections::BTreeMap;

use protox::prost_reflect::prost_types::{
    DescriptorProto, EnumDescriptorProto, FieldDescriptorProto, FileDescriptorSet,
    MethodDescriptorProto, ServiceDescriptorProto,
};

/// Every change that a program of the version before would not understand, each named.
pub(crate) fn differences(before: &FileDescriptorSet, now: &FileDescriptorSet) -> Vec<String> {
    let (before, now) = (Package::of(before), Package::of(now));
    let mut found = Vec::new();
    for (name, message) in &before.messages {
        match now.messages.get(name) {
            Some(now) => compare_messages(name, message, now, &mut found),
            None => found.push(format!("message {name} is gone")),
        }
    }
    for (name, values) in &before.enums {
        match now.enums.get(name) {
            Some(now) => compare_enums(name, values, now, &mut found),
            None => found.push(format!("enum {name} is gone")),
        }
    }
    for (name, service) in &before.services {
        match now.services.get(name) {
            Some(now) => compare_services(name, service, now, &mut found),
            None => found.push(format!("service {name} is gone")),
        }
    }
    found
}

/// What a package holds, by full names such as `.windlass.v1.Checkpoint`.
#[derive(Default)]
struct Package<'a> {
    messages: BTreeMap<String, &'a DescriptorProto>,
    enums: BTreeMap<String, &'a EnumDescriptorProto>,
    services: BTreeMap<String, &'a ServiceDescriptorProto>,
}

impl<'a> Package<'a> {
    fn of(files: &'a FileDescriptorSet) -> Self {
        let mut package = Package::default();
        for file in &files.file {
            let scope = format!(".{}", file.package());
            for message in &file.message_type {
                package.add(&scope, message);
            }
            for values in &file.enum_type {
                package.enums.insert(format!("{scope}.{}", values.name()), values);
            }
            for service in &file.service {
                package.services.insert(format!("{scope}.{}", service.name()), service);
            }
        }
        package
    }

    fn add(&mut self, scope: &str, message: &'a DescriptorProto) {
        let name = format!("{scope}.{}", message.name());
        for nested in &message.nested_type {
            self.add(&name, nested);
        }
        for values in &message.enum_type {
            self.enums.insert(format!("{name}.{}", values.name()), values);
        }
        self.messages.insert(name, message);
    }
}

fn compare_messages(
    message: &str,
    before: &DescriptorProto,
    now: &DescriptorProto,
    found: &mut Vec<String>,
) {
    // Their ends are not part of them.
    let is_within = |ranges: &DescriptorProto, number: i32| {
        ranges.reserved_range.iter().any(|it| (it.start()..it.end()).contains(&number))
    };
    for field in &before.field {
        let (name, number) = (field.name(), field.number());
        let what = format!("{message}.{name} = {number}");
        if let Some(other) = now.field.iter().find(|other| other.number() == number) {
            compare_fields(&what, (before, field), (now, other), found);
            continue;
        }
        let is_reserved = now.reserved_name.iter().any(|reserved| reserved == name);
        found.extend(gone(&what, is_within(now, number), is_reserved));
    }
    for field in &now.field {
        let (name, number) = (field.name(), field.number());
        if is_within(before, number) {
            found.push(format!("{message}.{name} uses {number}, which is reserved"));
        }
        if before.reserved_name.iter().any(|reserved| reserved == name) {
            found.push(format!("{message}.{name} uses a name that is reserved"));
        }
    }
}

/// What is wrong with something that is gone, if anything is.
fn gone(what: &str, is_number_reserved: bool, is_name_reserved: bool) -> Option<String> {
    let lacks = match (is_number_reserved, is_name_reserved) {
        (true, true) => return None,
        (false, _) => "number",
        (true, false) => "name",
    };
    Some(format!("{what} is gone and its {lacks} is not reserved"))
}

fn compare_fields(
    what: &str,
    (message_before, before): (&DescriptorProto, &FieldDescriptorProto),
    (message_now, now): (&DescriptorProto, &FieldDescriptorProto),
    found: &mut Vec<String>,
) {
    if now.name() != before.name() {
        found.push(format!("{what} is called {}", now.name()));
    }
    if now.json_name() != before.json_name() {
        let (now, before) = (now.json_name(), before.json_name());
        found.push(format!("{what} is {now:?} in JSON, it was {before:?}"));
    }
    let (kind_now, kind_before) = (kind(now), kind(before));
    if kind_now != kind_before {
        found.push(format!("{what} is {kind_now}, it was {kind_before}"));
    }
    let (label_now, label_before) = (now.label().as_str_name(), before.label().as_str_name());
    if label_now != label_before {
        found.push(format!("{what} is {label_now}, it was {label_before}"));
    }
    let (oneof_now, oneof_before) = (oneof(message_now, now), oneof(message_before, before));
    if oneof_now != oneof_before {
        found.push(format!("{what} is in {oneof_now}, it was in {oneof_before}"));
    }
}

/// The name of its type, such as `TYPE_STRING` or `.windlass.v1.Held`.
fn kind(field: &FieldDescriptorProto) -> String {
    match &field.type_name {
        Some(name) => name.clone(),
        None => field.r#type().as_str_name().to_owned(),
    }
}

/// The oneof of a field. One that is optional has its own.
fn oneof(message: &DescriptorProto, field: &FieldDescriptorProto) -> String {
    let place = field.oneof_index.and_then(|index| usize::try_from(index).ok());
    match place.and_then(|place| message.oneof_decl.get(place)) {
        Some(oneof) => format!("the oneof {}", oneof.name()),
        None => "no oneof".to_owned(),
    }
}

fn compare_enums(
    name: &str,
    before: &EnumDescriptorProto,
    now: &EnumDescriptorProto,
    found: &mut Vec<String>,
) {
    for value in &before.value {
        let what = format!("{name}.{} = {}", value.name(), value.number());
        match now.value.iter().find(|other| other.name() == value.name()) {
            Some(other) if other.number() == value.number() => {}
            Some(other) => found.push(format!("{what} is {}", other.number())),
            None => {
                // Their ends are part of them, unlike those of messages.
                let is_number = now
                    .reserved_range
                    .iter()
                    .any(|it| (it.start()..=it.end()).contains(&value.number()));
                let is_name = now.reserved_name.iter().any(|reserved| reserved == value.name());
                found.extend(gone(&what, is_number, is_name));
            }
        }
    }
    for value in &now.value {
        let (value, number) = (value.name(), value.number());
        let is_within =
            before.reserved_range.iter().any(|it| (it.start()..=it.end()).contains(&number));
        if is_within {
            found.push(format!("{name}.{value} uses {number}, which is reserved"));
        }
        if before.reserved_name.iter().any(|reserved| reserved == value) {
            found.push(format!("{name}.{value} uses a name that is reserved"));
        }
    }
}

fn compare_services(
    name: &str,
    before: &ServiceDescriptorProto,
    now: &ServiceDescriptorProto,
    found: &mut Vec<String>,
) {
    for method in &before.method {
        let what = format!("{name}.{}", method.name());
        match now.method.iter().find(|other| other.name() == method.name()) {
            Some(other) => compare_methods(&what, method, other, found),
            None => found.push(format!("{what} is gone")),
        }
    }
}

fn compare_methods(
    what: &str,
    before: &MethodDescriptorProto,
    now: &MethodDescriptorProto,
    found: &mut Vec<String>,
) {
    let how = |is_stream: bool| if is_stream { "in a stream" } else { "once" };
    if now.client_streaming() != before.client_streaming() {
        let (now, before) = (how(now.client_streaming()), how(before.client_streaming()));
        found.push(format!("{what} is asked {now}, it was {before}"));
    }
    if now.server_streaming() != before.server_streaming() {
        let (now, before) = (how(now.server_streaming()), how(before.server_streaming()));
        found.push(format!("{what} is answered {now}, it was {before}"));
    }
    if now.input_type() != before.input_type() {
        found.push(format!("{what} takes {}, it took {}", now.input_type(), before.input_type()));
    }
    if now.output_type() != before.output_type() {
        let (now, before) = (now.output_type(), before.output_type());
        found.push(format!("{what} answers {now}, it answered {before}"));
    }
}

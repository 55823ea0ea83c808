"""The page /docs: a reference of the API, made from its OpenAPI description, without scripts and other files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from html import escape
from typing import Any

POLICY = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'"}
"""Header that forbids the page to load or run anything."""
PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ max-width: 64rem; margin: 0 auto; padding: 1rem; font: 16px/1.5 system-ui, sans-serif; }}
table {{ border-collapse: collapse; width: 100%; }}
th, td {{ border-bottom: 1px solid #8884; padding: .3rem .6rem .3rem 0; text-align: left; vertical-align: top; }}
</style>
</head>
<body>
<h1>{title}</h1>
<p>{description} The same as JSON: <a href="openapi.json">openapi.json</a>.</p>
{body}
</body>
</html>
"""
BOUNDS = {
    "exclusiveMinimum": "above {}",
    "minimum": "at least {}",
    "exclusiveMaximum": "below {}",
    "maximum": "at most {}",
    "minLength": "at least {} characters",
    "minItems": "at least {} items",
}


def reference(api: Mapping[str, Any]) -> str:
    """Return the page for an OpenAPI description."""
    info = api["info"]
    title = escape(f"{info['title']} {info['version']}")
    return PAGE.format(title=title, description=escape(info["description"]), body=reference_body(api))


def reference_body(api: Mapping[str, Any]) -> str:
    """Return all operations and objects of an OpenAPI description as HTML."""
    parts = [
        _operation(method.upper(), path, operation)
        for path, methods in api["paths"].items()
        for method, operation in methods.items()
    ]
    parts.append("<h2>Objects</h2>")
    for name, schema in api["components"]["schemas"].items():
        if "properties" in schema:
            parts.append(f'<h3 id="{escape(name)}">{escape(name)}</h3>')
            parts.append(f"<p>{escape(schema.get('description', ''))}</p>{_fields(schema)}")
    return "\n".join(parts)


def _operation(method: str, path: str, operation: Mapping[str, Any]) -> str:
    lines = [f"<h2><code>{method} {escape(path)}</code></h2>", f"<p>{escape(operation['description'])}</p>"]
    if "requestBody" in operation:
        lines.append(f"<p>Request: {_kind(_schema(operation['requestBody']))}</p>")
    lines.append(f"<p>Response: {_kind(_schema(operation['responses']['200']))}</p>")
    errors = ", ".join(sorted(status for status in operation["responses"] if status != "200"))
    if errors:
        lines.append(f'<p>Errors: {errors}, as <a href="#ErrorAnswer">ErrorAnswer</a></p>')
    return "\n".join(lines)


def _schema(message: Mapping[str, Any]) -> Mapping[str, Any]:
    schema: Mapping[str, Any] = message["content"]["application/json"]["schema"]
    return schema


def _fields(schema: Mapping[str, Any]) -> str:
    required = schema.get("required", ())
    rows = [
        f"<tr><td><code>{escape(name)}</code></td><td>{_kind(field)}</td>"
        f"<td>{'required' if name in required else _default(field)}</td>"
        f"<td>{escape(field.get('description', ''))}</td></tr>"
        for name, field in schema["properties"].items()
    ]
    return f"<table><tr><th>field<th>type<th>default<th>meaning</tr>{''.join(rows)}</table>"


def _default(field: Mapping[str, Any]) -> str:
    return escape(json.dumps(field["default"])) if "default" in field else ""


def _kind(schema: Mapping[str, Any]) -> str:
    """Return the type of a value as HTML."""
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f'<a href="#{name}">{name}</a>'
    if "anyOf" in schema:
        return " or ".join(map(_kind, schema["anyOf"]))
    if "enum" in schema or "const" in schema:
        return " or ".join(escape(json.dumps(value)) for value in schema.get("enum", [schema.get("const")]))
    if "prefixItems" in schema:
        return f"[{', '.join(map(_kind, schema['prefixItems']))}]"
    kind = escape(schema.get("type", "any value"))
    if "items" in schema:
        kind = f"list of {_kind(schema['items'])}"
    bounds = [text.format(_number(schema[key])) for key, text in BOUNDS.items() if key in schema]
    return f"{kind} ({', '.join(bounds)})" if bounds else kind


def _number(value: float) -> str:
    """Return a bound without a decimal point if it is an integer, as pydantic writes all bounds as floats."""
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else str(value)

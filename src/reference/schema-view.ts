export type Schema = { readonly [keyword: string]: unknown };

export class Markup {
  readonly text: string;

  constructor(text: string) {
    this.text = text;
  }
}

type Part = Markup | string | number | undefined | readonly Markup[];

const entities: Readonly<Record<string, string>> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&quot;',
  "'": '&#39;',
};

function render(part: Part): string {
  if (part === undefined) return '';
  if (part instanceof Markup) return part.text;
  if (typeof part === 'object') return part.map(({ text }) => text).join('');
  return String(part).replaceAll(/[&<>"']/g, (character) => entities[character] ?? '');
}

/** Renders HTML. Values are escaped, unless they are Markup. */
export function html(strings: TemplateStringsArray, ...parts: readonly Part[]): Markup {
  return new Markup(String.raw({ raw: strings }, ...parts.map(render)));
}

const isSchema = (value: unknown): value is Schema => typeof value === 'object' && value !== null;
const asSchema = (value: unknown): Schema => (isSchema(value) ? value : {});
const asSchemas = (value: unknown): readonly Schema[] => (Array.isArray(value) ? value.map(asSchema) : []);

function findName(schema: Schema): string | undefined {
  const { $ref } = schema;
  return typeof $ref === 'string' ? $ref.split('/').at(-1) : undefined;
}

const words = (value: unknown): string => (typeof value === 'string' ? value : JSON.stringify(value));

/** Describes a type in a few words; a reference is a link. */
export function describeType(schema: Schema): Markup {
  const name = findName(schema);
  if (name !== undefined) return html`<a href="#schema-${name}">${name}</a>`;
  if ('const' in schema) return html`<code>${words(schema['const'])}</code>`;
  const { enum: values, type, items, anyOf, oneOf, format } = schema;
  if (Array.isArray(values))
    return html`${values.map((value, index) => html`${index === 0 ? '' : ' | '}<code>${words(value)}</code>`)}`;
  const choices = asSchemas(anyOf ?? oneOf);
  if (choices.length > 0)
    return html`${choices.map((choice, index) => html`${index === 0 ? '' : ' or '}${describeType(choice)}`)}`;
  if (type === 'array') return html`array of ${describeType(asSchema(items))}`;
  const parts = asSchemas(schema['allOf']);
  if (parts.length > 0)
    return html`${parts.map((part, index) => html`${index === 0 ? '' : ' and '}${describeType(part)}`)}`;
  const types = [type].flat().flatMap((one) => (one === undefined ? [] : words(one)));
  return html`${types.length === 0 ? 'any' : types.join(' or ')}${format === undefined ? '' : ` (${words(format)})`}`;
}

const bounds: Readonly<Record<string, string>> = {
  minimum: 'at least',
  maximum: 'at most',
  minLength: 'characters, at least',
  maxLength: 'characters, at most',
  minItems: 'elements, at least',
  maxItems: 'elements, at most',
  maxProperties: 'members, at most',
  multipleOf: 'multiple of',
  pattern: 'pattern',
  default: 'default',
};

/** Describes the bounds of a value; those of a choice are of its first branch. */
export function describeBounds(schema: Schema): string {
  const [first] = asSchemas(schema['anyOf']);
  const own = { ...first, ...schema };
  const found = Object.entries(bounds).flatMap(([keyword, said]) =>
    own[keyword] === undefined ? [] : [`${said} ${words(own[keyword])}`],
  );
  return found.join('; ');
}

/** Describes the members of an object, or of the objects of an array, recursively; undefined for other schemas. */
export function describeMembers(schema: Schema): Markup | undefined {
  const { properties, items } = schema;
  if (schema['type'] === 'array') return describeMembers(asSchema(items));
  const branches = asSchemas(schema['oneOf'] ?? schema['allOf']).flatMap((branch) => describeMembers(branch) ?? []);
  if (branches.length > 0) return html`${branches}`;
  const members = Object.entries(asSchema(properties));
  if (members.length === 0) return undefined;
  const required = new Set(Array.isArray(schema['required']) ? schema['required'] : []);
  return html`<dl>${members.map(([name, value]) => describeMember(name, asSchema(value), required.has(name)))}</dl>`;
}

function describeMember(name: string, schema: Schema, isRequired: boolean): Markup {
  const notes = [schema['description'], describeBounds(schema)].filter((note) => note !== undefined && note !== '');
  return html`<dt>
      <code>${name}</code>
      <span class="type">${describeType(schema)}</span>${isRequired ? html` <em>required</em>` : ''}
    </dt>
    <dd>${notes.map((note) => html`<p>${String(note)}</p>`)}${describeMembers(schema)}</dd>`;
}

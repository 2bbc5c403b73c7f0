import { describeBounds, describeMembers, describeType, html, type Markup, type Schema } from './schema-view.ts';

/** The parts of an OpenAPI 3.1 document that the page shows. */
interface Media {
  readonly schema: Schema;
  readonly example?: unknown;
}

interface Body {
  readonly description?: string;
  readonly content?: Readonly<Record<string, Media>>;
}

interface Parameter extends Media {
  readonly name: string;
  readonly in: 'query' | 'header' | 'path';
  readonly required?: boolean;
  readonly description?: string;
}

interface Operation {
  readonly operationId: string;
  readonly summary: string;
  readonly description?: string;
  readonly tags: readonly string[];
  readonly security: readonly Readonly<Record<string, unknown>>[];
  readonly parameters?: readonly Parameter[];
  readonly requestBody?: Body;
  readonly responses: Readonly<Record<string, Body>>;
}

interface Server {
  readonly url: string;
}

export interface OpenApiDocument {
  readonly info: { readonly title: string; readonly version: string; readonly description: string };
  readonly paths: Readonly<Record<string, Readonly<Record<string, Operation | readonly Server[]>>>>;
  readonly components: {
    readonly schemas: Readonly<Record<string, Schema>>;
    readonly securitySchemes: Readonly<Record<string, { readonly description: string }>>;
  };
}

export interface Call extends Operation {
  readonly verb: string;
  readonly path: string;
  readonly server: string;
}

/** Lists the operations in order. Of several verbs of a path it lists the one with the plain name. */
export function listCalls({ paths }: OpenApiDocument): readonly Call[] {
  return Object.entries(paths).flatMap(([path, { servers, ...verbs }]) => {
    const [server] = servers as readonly Server[];
    return Object.entries(verbs).flatMap(([verb, operation]) => {
      const isShown = 'operationId' in operation && !/By(?:Get|Head)$/.test(operation.operationId);
      return isShown ? { ...operation, verb, path, server: server?.url ?? '' } : [];
    });
  });
}

const signatures: Readonly<Record<string, readonly string[]>> = {
  importToken: ['-H', 'Authorization: TOKEN'],
  basic: ['-u', 'ID:SECRET'],
};

/** Quotes a word for a POSIX shell. */
const quote = (word: string): string =>
  /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", String.raw`'\''`)}'`;

const write = (value: unknown): string => (typeof value === 'string' ? value : JSON.stringify(value));

const valueOf = ({ example }: Parameter): string => (Array.isArray(example) ? example.join(',') : write(example));

function findMedia(body: Body | undefined): Media | undefined {
  return Object.values(body?.content ?? {})[0];
}

/** Returns the URL with the parameters that have an example, percent-encoded. */
function exampleUrl({ server, path, parameters = [], requestBody }: Call): string {
  const shown = parameters.filter(({ example }) => example !== undefined);
  const filled = path.replaceAll(/\{(\w+)\}/g, (_all, name: string) => {
    const found = shown.find((one) => one.in === 'path' && one.name === name);
    return found === undefined ? name : encodeURIComponent(valueOf(found));
  });
  const isForm = requestBody?.content?.['application/x-www-form-urlencoded'] !== undefined;
  const query = shown
    .filter((one) => one.in === 'query' && !isForm)
    .map((one) => `${one.name}=${encodeURIComponent(valueOf(one)).replaceAll('%2C', ',')}`);
  return `${server}${filled}${query.length === 0 ? '' : `?${query.join('&')}`}`;
}

function exampleBody({ requestBody }: Call): readonly string[] {
  const example = findMedia(requestBody)?.example;
  if (example === undefined) return [];
  const isForm = requestBody?.content?.['application/x-www-form-urlencoded'] !== undefined;
  if (!isForm) return ['-d', JSON.stringify(example)];
  return Object.entries(example as object).flatMap(([name, value]) => ['-d', `${name}=${String(value)}`]);
}

function exampleCommand(call: Call): string {
  const { verb, security, parameters = [] } = call;
  const ways = security.flatMap((rule) => signatures[Object.keys(rule)[0] ?? ''] ?? []);
  const headers = parameters
    .filter((one) => one.in === 'header' && one.example !== undefined)
    .flatMap(({ name, example }) => ['-H', `${name}: ${write(example)}`]);
  const body = exampleBody(call);
  const isPlain = verb === (body.length === 0 ? 'get' : 'post');
  const words = [
    exampleUrl(call),
    ...(isPlain ? [] : ['-X', verb.toUpperCase()]),
    ...ways.slice(0, 2),
    ...headers,
    ...body,
  ];
  // One option per line.
  return `curl ${words.map(quote).join(' ')}`.replaceAll(/ (?=-[HdXu] )/g, ' \\\n  ');
}

function describeParameter(parameter: Parameter): Markup {
  const { name, required, description, schema } = parameter;
  const place = parameter.in === 'query' ? '' : ` in ${parameter.in}`;
  const note = describeBounds(schema);
  return html`<dt>
      <code>${name}</code>
      <span class="type">${describeType(schema)}${place}</span>${required === true ? html` <em>required</em>` : ''}
    </dt>
    <dd>${description === undefined ? '' : html`<p>${description}</p>`}${note === '' ? '' : html`<p>${note}</p>`}</dd>`;
}

function fold(title: string, content: Markup | undefined): Markup {
  return content === undefined
    ? html``
    : html`<details>
        <summary>${title}</summary>
        ${content}
      </details>`;
}

/** Renders preformatted text that scrolls and is reachable by keyboard. */
export function block(label: string, text: string): Markup {
  return html`<pre tabindex="0" role="region" aria-label="${label}">${text}</pre>`;
}

function describeBody({ requestBody, summary }: Call): Markup {
  const media = findMedia(requestBody);
  if (requestBody === undefined || media === undefined) return html``;
  const example = media.example === undefined ? undefined : JSON.stringify(media.example, null, 2);
  return html`<h4>Body</h4>
    <p>${describeType(media.schema)}${requestBody.description === undefined ? '' : `. ${requestBody.description}`}</p>
    ${example === undefined ? '' : block(`Body of: ${summary}`, example)}
    ${fold('Members', describeMembers(media.schema))}`;
}

function describeAnswers({ responses, summary }: Call): Markup {
  const media = findMedia(responses['200']);
  const example = media?.example === undefined ? undefined : media.example;
  const shown = typeof example === 'string' ? example : JSON.stringify(example, null, 2);
  const statuses = Object.entries(responses).map(([status, answer]) => {
    const schema = findMedia(answer)?.schema;
    return html`<dt>
        <code>${status}</code> <span class="type">${schema === undefined ? '' : describeType(schema)}</span>
      </dt>
      <dd><p>${answer.description}</p></dd>`;
  });
  return html`<h4>Answer</h4>
    ${example === undefined ? '' : block(`Response of: ${summary}`, shown)}
    ${fold('Members', media === undefined ? undefined : describeMembers(media.schema))}
    ${fold('Every status', html`<dl>${statuses}</dl>`)}`;
}

export function describeCall(call: Call): Markup {
  const { operationId, verb, path, summary, description, parameters = [] } = call;
  const parameterList = html`<dl>${parameters.map(describeParameter)}</dl>`;
  return html`<section
    id="${operationId}"
    aria-labelledby="${operationId}-title"
    data-call="${`${verb} ${path} ${summary}`.toLowerCase()}"
  >
    <h3 id="${operationId}-title">${summary}</h3>
    <p class="path"><span class="verb">${verb.toUpperCase()}</span> <code>${path}</code></p>
    ${description === undefined ? '' : html`<p>${description}</p>`}
    ${block(`Command for: ${summary}`, exampleCommand(call))}
    ${parameters.length === 0 ? '' : fold(`Parameters (${parameters.length})`, parameterList)} ${describeBody(call)}
    ${describeAnswers(call)}
  </section>`;
}

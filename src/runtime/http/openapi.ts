export type OpenApiObject = { readonly [name: string]: unknown };

export type Schema = OpenApiObject;
type Schemas = Readonly<Record<string, Schema>>;

export const text: Schema = { type: 'string' };
export const count: Schema = { type: 'integer', minimum: 0 };
export const flag: Schema = { type: 'boolean' };
export const moment: Schema = { type: 'string', format: 'date-time' };
export const date: Schema = { type: 'string', format: 'date' };
/** A SHA-256 or an Ed25519 key, hex. */
export const hash: Schema = { type: 'string', pattern: '^[0-9a-f]{64}$' };

export const choice = (values: readonly string[]): Schema => ({ type: 'string', enum: values });
export const constant = (value: string | number): Schema => ({
  type: typeof value === 'string' ? 'string' : 'integer',
  const: value,
});
export const listOf = (items: Schema, description?: string): Schema => note({ type: 'array', items }, description);
export const note = (schema: Schema, description: string | undefined): Schema =>
  description === undefined ? schema : { ...schema, description };
export const reference = (name: string): Schema => ({ $ref: `#/components/schemas/${name}` });

/** Returns the schema of an object. A name that ends with `?` is an optional member. */
export function object(members: Schemas, more: Schema = {}): Schema {
  const names = Object.keys(members);
  return {
    type: 'object',
    required: names.filter((name) => !name.endsWith('?')),
    ...more,
    properties: Object.fromEntries(names.map((name) => [name.replace('?', ''), members[name]])),
  };
}

export const json = (description: string, schema: Schema, more: OpenApiObject = {}): OpenApiObject => ({
  description,
  content: { 'application/json': { schema } },
  ...more,
});

/** Returns a parameter, by default of the query. A name that ends with `?` is optional. */
export function parameter(name: string, schema: Schema, description?: string, place = 'query'): Schema {
  const isRequired = !name.endsWith('?');
  return note({ name: name.replace('?', ''), in: place, required: isRequired, schema }, description);
}

/** The two areas of the API, each on its own host (docs/api.md). */
type OpenApiArea = 'import' | 'export';

export interface OpenApiServer {
  readonly url: string;
  readonly description: string;
  readonly variables?: Readonly<Record<string, { readonly default: string; readonly description: string }>>;
}

/** An example request of a path and its response. */
export interface OpenApiExample {
  /** Values of parameters by name. */
  readonly given?: OpenApiObject;
  /** The request body, or the fields of a form. */
  readonly body?: unknown;
  readonly answer?: unknown;
}

/** One area's part of the API reference. Paths and component names must be unique among the areas. */
export interface OpenApiPart {
  readonly area: OpenApiArea;
  /** By path, then by lower-case verb. */
  readonly paths: Readonly<Record<string, unknown>>;
  /** By path, for all its verbs. */
  readonly examples: Readonly<Record<string, OpenApiExample>>;
  readonly components: {
    readonly schemas: Readonly<Record<string, unknown>>;
    readonly securitySchemes: Readonly<Record<string, unknown>>;
  };
}

interface Content {
  readonly content?: Readonly<Record<string, OpenApiObject>>;
}

interface Operation extends OpenApiObject {
  readonly parameters?: readonly (OpenApiObject & { readonly name: string })[];
  readonly requestBody?: OpenApiObject & Content;
  readonly responses: Readonly<Record<string, OpenApiObject & Content>>;
}

function showBody<T extends Content>(body: T, example: unknown): T {
  if (body.content === undefined || example === undefined) return body;
  const content = Object.entries(body.content).map(([type, described]) => [type, { ...described, example }]);
  return { ...body, content: Object.fromEntries(content) };
}

function showExample(operation: Operation, { given = {}, body, answer }: OpenApiExample): Operation {
  const { parameters, requestBody, responses } = operation;
  const { 200: done = {}, ...others } = responses;
  return {
    ...operation,
    ...(parameters === undefined
      ? {}
      : {
          parameters: parameters.map((one) =>
            Object.hasOwn(given, one.name) ? { ...one, example: given[one.name] } : one,
          ),
        }),
    ...(requestBody === undefined ? {} : { requestBody: showBody(requestBody, body) }),
    responses: { 200: showBody(done, answer), ...others },
  };
}

/** Returns the operation's name in generated clients, such as `rawExportCreate`. Verbs but the first are suffixes. */
function nameOperation(path: string, verb: string, verbs: readonly string[]): string {
  const words = path
    .replace(/\.json$/, '')
    .split(/[/-]/)
    .filter((word) => word !== '' && word !== 'api' && !/^v\d+$|^\{/.test(word));
  const name = words.map((word, index) => (index === 0 ? word : word.charAt(0).toUpperCase() + word.slice(1))).join('');
  const plain = ['post', 'get'].find((one) => verbs.includes(one));
  return verb === plain ? name : `${name}By${verb.charAt(0).toUpperCase()}${verb.slice(1)}`;
}

function describePath(path: string, described: unknown, server: OpenApiServer, example: OpenApiExample): OpenApiObject {
  const operations = Object.entries(described as Readonly<Record<string, Operation>>);
  const verbs = operations.map(([verb]) => verb);
  const named = operations.map(([verb, operation]) => {
    const operationId = nameOperation(path, verb, verbs);
    return [verb, { operationId, ...showExample(operation, example) }];
  });
  return { servers: [server], ...Object.fromEntries(named) };
}

function merge<T>(maps: readonly Readonly<Record<string, T>>[]): Record<string, T> {
  const merged: Record<string, T> = {};
  for (const map of maps) {
    for (const [name, value] of Object.entries(map)) {
      if (Object.hasOwn(merged, name)) throw new Error(`two areas describe ${name}`);
      merged[name] = value;
    }
  }
  return merged;
}

/** Joins the areas into one OpenAPI 3.1 document. Each path names the servers of its area. Throws if parts overlap. */
export function assembleOpenApi(
  version: string,
  servers: Readonly<Record<OpenApiArea, OpenApiServer>>,
  parts: readonly OpenApiPart[],
): OpenApiObject {
  const pathsOf = ({ paths, area, examples }: OpenApiPart): Record<string, unknown> =>
    Object.fromEntries(
      Object.entries(paths).map(([path, verbs]) => [
        path,
        describePath(path, verbs, servers[area], examples[path] ?? {}),
      ]),
    );
  return {
    openapi: '3.1.0',
    info: { title: 'tributary', version, description: 'Import of user and device events, and export of raw data.' },
    servers: [servers.export],
    paths: merge(parts.map(pathsOf)),
    components: {
      schemas: merge(parts.map((part) => part.components.schemas)),
      securitySchemes: merge(parts.map((part) => part.components.securitySchemes)),
    },
  };
}

// Generates the package's export `tributary/client` in DIST/client from the OpenAPI document: `node .build/client.mjs
// DIST`. It has the table of operations for src/sdk/client.ts and the types of their parameters and results.
import { execFileSync } from 'node:child_process';
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { rolldown } from 'rolldown';

const root = path.resolve(import.meta.dirname, '..');

/** Returns the document that the service serves, by running the service's code from a temporary bundle. */
function readDocument(folder) {
  const work = path.join(folder, 'document');
  execFileSync(process.execPath, [path.join(root, '.build/bundle.mjs'), work, 'src/composition/api-reference.ts'], {
    cwd: root,
  });
  const { describeApi } = createRequire(import.meta.url)(path.join(work, 'api-reference.js'));
  const document = describeApi({ host: '127.0.0.1', s2sPort: 8080 })('http://127.0.0.1:8081');
  rmSync(work, { recursive: true });
  return document;
}

const isName = /^[A-Za-z_$][\w$]*$/;
const nameOf = (name) => (isName.test(name) ? name : JSON.stringify(name));
const comment = (text, indent) =>
  text === undefined ? '' : `${indent}/** ${text.replaceAll('*/', '* /').replaceAll('\n', ' ')} */\n`;

const plainTypes = { string: 'string', integer: 'number', number: 'number', boolean: 'boolean', null: 'null' };

/** Returns the type of a schema. */
function typeOf(schema, indent = '') {
  const {
    $ref,
    const: only,
    enum: values,
    anyOf,
    oneOf,
    allOf,
    type,
    items,
    properties,
    additionalProperties,
  } = schema;
  if ($ref !== undefined) return $ref.split('/').at(-1);
  if (only !== undefined) return JSON.stringify(only);
  if (values !== undefined) return values.map((value) => JSON.stringify(value)).join(' | ');
  if (allOf !== undefined) return allOf.map((part) => typeOf(part, indent)).join(' & ');
  const branches = anyOf ?? oneOf;
  if (branches !== undefined) return [...new Set(branches.map((branch) => typeOf(branch, indent)))].join(' | ');
  if (Array.isArray(type)) return type.map((one) => typeOf({ ...schema, type: one }, indent)).join(' | ');
  if (type === 'array') return `ReadonlyArray<${typeOf(items ?? {}, indent)}>`;
  if (type !== 'object') return plainTypes[type] ?? 'unknown';
  if (properties !== undefined) return membersOf(properties, schema.required ?? [], indent);
  const value = typeof additionalProperties === 'object' ? typeOf(additionalProperties, indent) : 'unknown';
  return `Readonly<Record<string, ${value}>>`;
}

/** Returns the type of an object. */
function membersOf(properties, required, indent) {
  const inner = `${indent}  `;
  const members = Object.entries(properties).map(([name, schema]) => {
    const mark = required.includes(name) ? '' : '?';
    const note = schema.description ?? schema.anyOf?.[0]?.description;
    return `${comment(note, inner)}${inner}readonly ${nameOf(name)}${mark}: ${typeOf(schema, inner)};\n`;
  });
  return members.length === 0 ? 'Readonly<Record<string, never>>' : `{\n${members.join('')}${indent}}`;
}

const jsonOf = (body) => body?.content?.['application/json']?.schema;
const formOf = (body) => body?.content?.['application/x-www-form-urlencoded']?.schema;

/** Lists the operations of the client: one of equivalent verbs of a path. */
function listOperations({ paths }) {
  return Object.entries(paths).flatMap(([target, { servers, ...verbs }]) =>
    Object.entries(verbs)
      .filter(([, { operationId }]) => !/By(?:Get|Head)$/.test(operationId))
      .map(([verb, operation]) => ({ ...operation, verb, path: target, server: servers[0] })),
  );
}

/** Returns the row of an operation in the client's table. */
function toRow({ verb, path: target, server, security, requestBody, responses, parameters = [] }) {
  const rules = security.flatMap((rule) => Object.keys(rule));
  return {
    verb,
    path: target,
    area: server.description.startsWith('Import') ? 'import' : 'export',
    signs: rules.includes('importToken') ? 'token' : rules.includes('basic') ? 'user' : 'nobody',
    sends: formOf(requestBody) !== undefined ? 'form' : jsonOf(requestBody) !== undefined ? 'json' : 'nothing',
    answers: jsonOf(responses[200]) === undefined ? 'response' : 'json',
    headers: parameters.filter((one) => one.in === 'header').map(({ name }) => name),
  };
}

/** Returns the signature of an operation's function. */
function signatureOf({ operationId, summary, description, parameters = [], requestBody, responses }) {
  const body = jsonOf(requestBody);
  const given = Object.fromEntries(
    parameters.map(({ name, schema, description: note }) => [
      name,
      note === undefined ? schema : { ...schema, description: note },
    ]),
  );
  // A form's operation accepts its required parameters in the query too, where all are optional.
  const needed = formOf(requestBody) === undefined ? [] : ['event', 'selectors'];
  const required = [...parameters.filter((one) => one.required).map(({ name }) => name), ...needed];
  const isBodyNeeded = requestBody?.required === true;
  const type = membersOf(
    { ...given, ...(body === undefined ? {} : { body }) },
    isBodyNeeded ? [...required, 'body'] : required,
    '  ',
  );
  const answer = jsonOf(responses[200]);
  const isOptional = required.length === 0 && !isBodyNeeded;
  const text = [summary, description].filter(Boolean).join(' ');
  return `${comment(text, '  ')}  ${operationId}(given${isOptional ? '?' : ''}: ${type}, options?: CallOptions): Promise<${answer === undefined ? 'Response' : typeOf(answer, '  ')}>;\n`;
}

function renderTypes(document) {
  const schemas = Object.entries(document.components.schemas).map(
    ([name, schema]) => `${comment(schema.description, '')}export type ${name} = ${typeOf(schema)};\n`,
  );
  const options = readFileSync(path.join(root, 'src/sdk/client-options.ts'), 'utf8');
  const program = readFileSync(path.join(root, 'src/sdk/client.ts'), 'utf8');
  const [, fields] = /class ApiError [^]*?'ApiError';\n([^]*?)\n\n +constructor/.exec(program) ?? [];
  if (fields === undefined) throw new Error('src/sdk/client.ts has no class ApiError with a constructor');
  const operations = listOperations(document).map(signatureOf);
  return `// The client of tributary ${document.info.version}, generated from its OpenAPI document.
${options}
/** A response that is not a success. */
export declare class ApiError extends Error {
${fields}
}

${schemas.join('\n')}
/** A function per operation. It throws \`ApiError\` for a response that is not a success, and errors of \`fetch\`. */
export interface Client {
${operations.join('\n')}}

export declare function createClient(options: ClientOptions): Client;
`;
}

/** Renders the data type of each method of the API by its path, for the pages of the console. */
function renderAnswers(document) {
  const rows = listOperations(document)
    .filter(({ path: target, responses }) => target.startsWith('/api/') && jsonOf(responses[200]) !== undefined)
    .map(({ path: target, operationId }) => `  readonly '${target}': Data<'${operationId}'>;\n`);
  return `import type { Client } from './index.mjs';

type Data<Name extends keyof Client> = Awaited<ReturnType<Client[Name]>> extends { readonly data: infer Data } ? Data : never;

export interface Answers {
${rows.join('')}}
`;
}

/** Writes the program of the client, one module. */
async function writeProgram(document, folder) {
  const table = Object.fromEntries(listOperations(document).map((one) => [one.operationId, toRow(one)]));
  const program = JSON.stringify(path.join(root, 'src/sdk/client.ts'));
  const entry = `import { createCalls } from ${program};
export { ApiError } from ${program};
export const createClient = (options) => createCalls(${JSON.stringify(table)}, options);`;
  const build = await rolldown({
    cwd: root,
    input: 'tributary-client',
    platform: 'neutral',
    plugins: [
      {
        name: 'client-entry',
        resolveId: (id) => (id === 'tributary-client' ? id : undefined),
        load: (id) => (id === 'tributary-client' ? entry : undefined),
      },
    ],
  });
  await build.write({ dir: folder, format: 'esm', entryFileNames: 'index.mjs' });
  await build.close();
}

const folder = path.resolve(process.argv[2] ?? 'dist', 'client');
mkdirSync(folder, { recursive: true });
const document = readDocument(folder);
writeFileSync(path.join(folder, 'index.d.mts'), renderTypes(document));
writeFileSync(path.join(folder, 'answers.d.mts'), renderAnswers(document));
await writeProgram(document, folder);
await import(pathToFileURL(path.join(folder, 'index.mjs')).href);

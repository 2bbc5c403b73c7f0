import { Ajv2020, type ValidateFunction } from 'ajv/dist/2020.js';
import { expect, test } from 'vitest';
import { describeApi } from '../../../src/composition/api-reference.ts';
import { parseConfig } from '../../../src/config.ts';
import { eventFields } from '../../../src/datasets/event-fields.ts';
import { importExamples } from '../../../src/ingest/openapi-examples.ts';
import { createReferencePages } from '../../../src/reference/page.ts';

interface Media {
  readonly schema: object;
  readonly example?: unknown;
}

interface Parameter extends Media {
  readonly name: string;
  readonly required?: boolean;
}

interface Operation {
  readonly operationId: string;
  readonly parameters?: readonly Parameter[];
  readonly requestBody?: { readonly content: Readonly<Record<string, Media>> };
  readonly responses: Readonly<Record<string, { readonly content?: Readonly<Record<string, Media>> }>>;
}

const document = describeApi(parseConfig({}))('https://api.example.com') as {
  readonly paths: Readonly<Record<string, Readonly<Record<string, Operation | readonly unknown[]>>>>;
};
const operations = Object.values(document.paths).flatMap((verbs) =>
  Object.entries(verbs).flatMap(([verb, operation]) => (verb === 'servers' ? [] : [operation as Operation])),
);

const ajv = new Ajv2020({ strict: false, validateFormats: false });
ajv.addSchema({ $id: 'reference', ...document });

/** Compiles a schema of the document, with references to the document. */
function compile(schema: object): ValidateFunction {
  return ajv.compile(
    JSON.parse(JSON.stringify(schema).replaceAll('"#/components/', '"reference#/components/')) as object,
  );
}

/** Lists the parts of an operation that must have examples, each with its name. */
function listShown({ operationId, parameters = [], requestBody, responses }: Operation): [string, Media][] {
  const bodies = [requestBody, responses['200']].flatMap((body) => Object.entries(body?.content ?? {}));
  return [
    ...parameters.map((one): [string, Media] => [`${operationId} ${one.name}`, one]),
    ...bodies.map(([type, media]): [string, Media] => [`${operationId} ${type}`, media]),
  ];
}

test('Every operation has an example of each required parameter, of its body and of its response', () => {
  const needed = operations.flatMap((operation) =>
    listShown(operation).filter(([, media]) => !('name' in media) || (media as Parameter).required === true),
  );
  expect(needed.length).toBeGreaterThan(80);
  expect(needed.filter(([, media]) => media.example === undefined).map(([what]) => what)).toEqual([]);
});

test('Every example of the API reference matches its schema', () => {
  const faults = operations.flatMap(listShown).flatMap(([what, { schema, example }]) => {
    const validate = compile(schema);
    return example === undefined || validate(example) ? [] : [`${what}: ${ajv.errorsText(validate.errors)}`];
  });
  expect(faults).toEqual([]);
});

test('No example sends a field that is not stored', () => {
  const known = new Set(eventFields.map(({ name }) => name));
  const sent = Object.entries(importExamples).flatMap(([target, { body }]) =>
    // Its body has the ids of events.
    (target === '/v1/events' ? [] : [body])
      .flat()
      .flatMap((event) => (typeof event === 'object' && event !== null ? [{ target, event }] : [])),
  );
  expect(sent.length).toBeGreaterThanOrEqual(8);
  const ignored = sent.flatMap(({ target, event }) =>
    Object.keys(event).flatMap((name) => (known.has(name) ? [] : [`${target} ${name}`])),
  );
  expect(ignored).toEqual([]);
});

test('Every operation has a unique name, which generated clients use', () => {
  const names = operations.map(({ operationId }) => operationId);
  expect(names).toContain('rawExportCreate');
  expect(names).toContain('customEventBatch');
  expect(names.filter((name, index) => !/^[a-z][A-Za-z]+$/.test(name) || names.indexOf(name) !== index)).toEqual([]);
});

test('HTML in the address is shown as text', () => {
  const pageOf = createReferencePages(describeApi(parseConfig({ TRIBUTARY_HOST: '0.0.0.0' })));
  const text = pageOf('http://x/"><script>alert(1)</script>').plain.toString();
  expect(text).not.toContain('<script>alert');
  expect(text).toContain('curl http://x/&quot;&gt;&lt;script&gt;alert(1)&lt;/script&gt;/api/');
  expect(text).toContain('curl http://x:8080/v1/version');
  expect(text).not.toContain('.invalid');
});

test('A choice of schemas has its default in one of them: elsewhere it breaks generated typed clients', () => {
  const choices = Object.entries(describedSchemas()).filter(([, schema]) => 'anyOf' in schema || 'oneOf' in schema);
  expect(choices.length).toBeGreaterThan(20);
  expect(choices.filter(([, schema]) => 'default' in schema).map(([place]) => place)).toEqual([]);
});

test('A schema that lists its values names their type: without it, clients in Go fail on a parameter that is left out', () => {
  const lists = Object.entries(describedSchemas()).filter(([, schema]) => 'enum' in schema || 'const' in schema);
  expect(lists.length).toBeGreaterThan(50);
  expect(lists.filter(([, schema]) => !('type' in schema)).map(([place]) => place)).toEqual([]);
});

/** Lists every object of the document that may be a schema, by its path. */
function describedSchemas(part: object = document, place = ''): Readonly<Record<string, object>> {
  const within = Object.entries(part).filter(([, value]) => typeof value === 'object' && value !== null);
  return Object.assign(
    { [place]: part },
    ...within.map(([name, value]) => describedSchemas(value as object, `${place}/${name}`)),
  ) as Readonly<Record<string, object>>;
}

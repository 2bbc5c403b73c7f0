import { channel } from 'node:diagnostics_channel';
import type { FastifyInstance } from 'fastify';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startStage } from '../../../src/composition.ts';
import { parseConfig } from '../../../src/config.ts';
import { createLogger } from '../../../src/runtime/logger.ts';
import { createMetrics } from '../../../src/runtime/metrics.ts';
import { send } from '../../helpers/export-area.ts';
import { temporaryFolder } from '../../helpers/folder.ts';

interface Reference {
  readonly openapi: string;
  readonly paths: Readonly<Record<string, Readonly<Record<string, unknown>>>>;
  readonly components: {
    readonly schemas: Readonly<Record<string, unknown>>;
    readonly securitySchemes: Readonly<Record<string, unknown>>;
  };
}

const verbs = ['get', 'head', 'post', 'put', 'patch', 'delete'];
/** Paths whose parameters the service parses itself, and their form in the reference. */
const ownSpelling: Readonly<Record<string, string>> = { '/files/*': '/files/{id}/{name}' };

/** The pages of the console and their sessions are internal: clients do not call them. */
const ofConsole = / \/(?:console(?:\/.*)?)?$/;

const routes: string[] = [];

/** Records each route of a server. Fastify reports every server when it is created, before its routes. */
function onServer(message: unknown): void {
  (message as { fastify: FastifyInstance }).fastify.addHook('onRoute', ({ method, url }) => {
    for (const verb of [method].flat()) routes.push(`${verb.toLowerCase()} ${ownSpelling[url] ?? url}`);
  });
}

describe('the API reference', () => {
  const dataDir = temporaryFolder();
  let stop: () => Promise<void>;
  let port: number;
  let reference: Reference;

  beforeAll(async () => {
    channel('fastify.initialization').subscribe(onServer);
    const config = parseConfig({ TRIBUTARY_DATA_DIR: dataDir, TRIBUTARY_API_PORT: '0' });
    const stage = await startStage('export', {
      config,
      entry: '',
      logger: createLogger('silent'),
      metrics: createMetrics(),
    });
    channel('fastify.initialization').unsubscribe(onServer);
    stop = () => stage.stop();
    port = stage.port ?? 0;
    reference = (await send(port, '/openapi.json')).json as unknown as Reference;
  });
  afterAll(() => stop());

  function described(): string[] {
    const importMethods = Object.entries(reference.paths).filter(([path]) => !path.startsWith('/v1/'));
    return importMethods.flatMap(([path, operations]) =>
      Object.keys(operations).flatMap((verb) => (verbs.includes(verb) ? [`${verb} ${path}`] : [])),
    );
  }

  it('The API reference has every route of the api port', () => {
    // A HEAD in addition to a GET is part of HTTP.
    const told = new Set(described());
    const ofClients = routes.filter((route) => !ofConsole.test(route));
    const missing = ofClients.filter((route) => !told.has(route) && !told.has(route.replace(/^head /, 'get ')));
    expect(ofClients.length).toBeGreaterThan(20);
    expect(missing).toEqual([]);
  });

  it('The API reference has no route that does not exist', () => {
    expect(described().filter((route) => !routes.includes(route))).toEqual([]);
  });

  it('The API reference gives each operation a summary, an existing security rule, and its responses', () => {
    for (const [path, operations] of Object.entries(reference.paths)) {
      for (const [verb, operation] of Object.entries(operations).filter(([name]) => verbs.includes(name))) {
        const { summary, security, responses } = operation as {
          summary?: string;
          security?: Readonly<Record<string, unknown>>[];
          responses?: Readonly<Record<string, unknown>>;
        };
        expect(summary, `${verb} ${path}`).toMatch(/\w/);
        expect(responses, `${verb} ${path}`).toHaveProperty('200');
        for (const rule of security ?? [{ missing: [] }])
          expect(Object.keys(reference.components.securitySchemes)).toEqual(expect.arrayContaining(Object.keys(rule)));
      }
    }
  });

  it('The API reference gives each path the servers of its area, those of export under the requested host', async () => {
    const { paths } = (await send(port, '/openapi.json', { headers: { host: 'api.example:1234' } }))
      .json as unknown as { paths: Readonly<Record<string, { servers?: { url: string }[] }>> };
    const urls = (isImport: boolean): (string | undefined)[] => [
      ...new Set(
        Object.entries(paths)
          .filter(([path]) => path.startsWith('/v1/') === isImport)
          .map(([, { servers }]) => servers?.[0]?.url),
      ),
    ];
    expect([urls(true), urls(false)]).toEqual([['http://127.0.0.1:8080'], ['http://api.example:1234']]);
  });

  it('The API reference and its page show a Host that no URL can have unchanged', async () => {
    const headers = { host: '%00.example:81' };
    const { status, json } = await send(port, '/openapi.json', { headers });
    const page = await send(port, '/docs', { headers });
    expect([status, page.status]).toEqual([200, 200]);
    expect(JSON.stringify(json)).toContain('"url":"http://%00.example:81"');
    expect(page.body.toString()).toContain('curl http://%00.example:81/api/');
  });

  it('The API reference has the response to too many calls for every counted call', () => {
    const counted = Object.keys(reference.paths).filter((path) => path.startsWith('/api/'));
    expect(counted.length).toBeGreaterThan(12);
    for (const path of counted)
      for (const operation of Object.values(reference.paths[path] ?? {}).filter((one) => !Array.isArray(one)))
        expect((operation as { responses: object }).responses, path).toHaveProperty('429');
  });

  it('The API reference refers only to schemas that it contains', () => {
    const names = [...JSON.stringify(reference).matchAll(/"#\/components\/schemas\/(\w+)"/g)].map(([, name]) => name);
    for (const name of names) expect(Object.keys(reference.components.schemas)).toContain(name);
  });

  it.each(['/healthz', '/readyz', '/openapi.json', '/docs'])(
    'The API reference describes the response of %s',
    async (target) => {
      const answer = await send(port, target);
      const operation = reference.paths[target]?.['get'] as
        | { responses: Readonly<Record<string, { content: Readonly<Record<string, unknown>> }>> }
        | undefined;
      expect(Object.keys(operation?.responses ?? {})).toContain(String(answer.status));
      expect(Object.keys(operation?.responses[String(answer.status)]?.content ?? {})).toContain(
        String(answer.headers['content-type']).split(';')[0],
      );
    },
  );
});

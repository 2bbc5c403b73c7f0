import { Ajv2020 } from 'ajv/dist/2020.js';
import { describe, expect, it } from 'vitest';
import type { AccessReader } from '../../../src/access/access.ts';
import { describeExportApi } from '../../../src/export/api/openapi.ts';
import { describeImport } from '../../../src/ingest/openapi.ts';
import { addImportRoutes, type RouteDependencies } from '../../../src/ingest/routes.ts';
import { describeDiagnostics } from '../../../src/ingest/diagnostics-openapi.ts';
import { addDiagnosticsRoutes, type DiagnosticsDependencies } from '../../../src/ingest/diagnostics-routes.ts';
import { createServer, defaultServerLimits } from '../../../src/ingest/server.ts';
import { eventFields } from '../../../src/datasets/event-fields.ts';
import { assembleOpenApi } from '../../../src/runtime/http/openapi.ts';
import { silentLogger } from '../../helpers/nats.ts';

const servers = {
  import: { url: 'http://s2s.example', description: 'Import' },
  export: { url: 'http://api.example', description: 'Export' },
};
const reference = assembleOpenApi('1.2.3', servers, [describeImport(), describeDiagnostics()]) as {
  paths: Record<string, { servers: unknown; post?: { requestBody?: { content: Record<string, { schema: object }> } } }>;
  components: { schemas: Record<string, { properties: Record<string, object> }> };
};

describe('the API reference of import', () => {
  it('The API reference of import has every route that the server has, and no other', async () => {
    const routes: string[] = [];
    const server = createServer(
      defaultServerLimits,
      { onProtocolError: () => undefined, onBadUrl: () => undefined },
      silentLogger,
    );
    server.addHook('onRoute', (route) => void routes.push(`${String(route.method)} ${route.url}`));
    // Nothing is called: only the routes are looked at.
    addImportRoutes(server, {} as RouteDependencies, '1.2.3');
    const access = { onChange: () => () => undefined } as unknown as AccessReader;
    addDiagnosticsRoutes(server, { access } as DiagnosticsDependencies);
    const described = Object.entries(reference.paths).flatMap(([path, methods]) =>
      Object.keys(methods)
        .filter((name) => name !== 'servers')
        .map((verb) => `${verb.toUpperCase()} ${path.replace(/\/$/, '')}`),
    );
    expect(new Set(described)).toEqual(new Set(routes));
    await server.close();
  });

  it('The API reference of import has every field of every kind', () => {
    const names = new Map([
      ['registration', 'Registration'],
      ['login', 'Login'],
      ['custom_event', 'CustomEvent'],
      ['revenue', 'Revenue'],
    ]);
    for (const field of eventFields)
      for (const kind of field.kinds)
        expect(reference.components.schemas[names.get(kind) ?? '']?.properties).toHaveProperty([field.name]);
  });

  it('The API reference of import consists of schemas that a validator understands and that accept what import accepts', () => {
    const ajv = new Ajv2020({ strict: false });
    ajv.addSchema({ $id: 'reference', ...reference });
    const validate = ajv.compile({
      $ref: 'reference#/paths/~1v1~1customEventBatch~1/post/requestBody/content/application~1json/schema',
    });
    expect(validate([{ customEventName: 'e', age: '33', idGender: 1, customEventParams: { a: 'b' }, hwid: '5' }])).toBe(
      true,
    );
    for (const bad of [
      [],
      [{}],
      [{ customEventName: '' }],
      [{ customEventName: 'e', age: 'x' }],
      [{ customEventName: 'e', idGender: 3 }],
      {},
    ])
      expect(validate(bad)).toBe(false);
  });

  it('The API reference of import takes an amount as a number or a text, as floats write it, too', () => {
    const ajv = new Ajv2020({ strict: false });
    ajv.addSchema({ $id: 'reference', ...reference });
    const validate = ajv.compile({ $ref: 'reference#/components/schemas/Revenue' });
    const revenue = { idTransaction: 't', currency: 'EUR' };
    for (const total of [1, '1', 9.5, '9.50', -0.25, 1.1 * 3])
      expect(validate({ ...revenue, total }), String(total)).toBe(true);
    for (const total of [undefined, null, 'x', 1e15]) expect(validate({ ...revenue, total })).toBe(false);
    expect(validate({ idTransaction: 't', total: 1 })).toBe(false);
    expect(validate({ currency: 'EUR', total: 1 })).toBe(false);
  });

  it('The API reference of import has the address of the import area', () => {
    for (const [path, { servers: own }] of Object.entries(reference.paths)) expect(own, path).toEqual([servers.import]);
  });

  it('The API reference of import can be joined with the reference of export', () => {
    const whole = assembleOpenApi('1', servers, [describeImport(), describeExportApi()]) as {
      paths: Record<string, { servers: unknown }>;
    };
    expect(whole.paths['/v1/login/']?.servers).toEqual([servers.import]);
    expect(whole.paths['/api/raw/v1/export/create.json']?.servers).toEqual([servers.export]);
  });

  it('The API reference of import refuses two areas that describe the same thing', () => {
    expect(() => assembleOpenApi('1', servers, [describeImport(), describeImport()])).toThrow(
      'two areas describe /v1/registration/',
    );
  });
});

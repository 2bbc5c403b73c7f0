import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startStage } from '../../src/composition.ts';
import { parseConfig } from '../../src/config.ts';
import { platforms } from '../../src/datasets/field-schema.ts';
import { createMetrics } from '../../src/runtime/metrics.ts';
import type { Stage } from '../../src/runtime/processes/role-process.ts';
import { recordFinding } from '../helpers/chaos-report.ts';
import {
  authHmac,
  basic,
  createExportArea,
  send,
  targetOf,
  type Answer,
  type Credentials,
} from '../helpers/export-area.ts';
import { temporaryFolder } from '../helpers/folder.ts';
import { ask, startTestIngest, testApps, type TestIngest } from '../helpers/ingest.ts';
import { writeLake, type FixtureEvent } from '../helpers/lake-fixture.ts';
import { silentLogger } from '../helpers/nats.ts';

/**
 * Every endpoint with every foreign id. The endpoints come from the API reference that the service serves, which other
 * tests compare with its routes. A new endpoint is therefore tested automatically, unless it is listed as open here.
 */

/** Endpoints without authorization. They return no data of an account. */
const openToAll = [
  /^\/api\/dictionary\/v1\/[\w-]+\.json$/,
  /^\/(healthz|readyz|openapi\.json|manifest-key\.json|docs)$/,
  /^\/v1\/version\/?$/,
];

const create = '/api/raw/v1/export/create.json';
const time = Date.parse('2025-05-02T00:00:00Z') / 1000;
const event = (id: string, idApp: number): FixtureEvent => ({
  event_id: id,
  kind: 'custom_event',
  id_app: idApp,
  event_time: time,
  available_at: time,
  custom_event_name: 'n',
});
const query = 'event=customEvents&selectors=eventId&dateFrom=2025-05-01&dateTo=2025-05-31';
const list = '/api/report/v1/file/list.json';
/** Filters that name apps, accounts and projects of others; their rows would have the event `strange`. */
const foreignFilters = [
  'idApp=8',
  'idApp=8,7777',
  'SDKKey=strange',
  'idAccount=2',
  'idProject=6',
  'idApp=8&SDKKey=strange',
  'idApp=7&idAccount=2',
];
const accessDenied = { code: 403, message: 'Access denied', data: null };

interface Operation {
  readonly security?: readonly object[];
  readonly parameters?: readonly { readonly name: string; readonly in: string }[];
}

interface Endpoint {
  readonly verb: string;
  readonly path: string;
  readonly operation: Operation;
}

const figures = { endpoints: 0, endpointsByForeignId: 0, callsWithForeignIds: 0, callsWithoutRight: 0, answered: 0 };

/** Asserts that a call was rejected with one of the statuses, and counts it. */
function expectRefused(answer: { readonly status: number }, allowed: readonly number[], what: string): void {
  if (!allowed.includes(answer.status)) figures.answered += 1;
  expect(allowed, what).toContain(answer.status);
}

afterAll(() => {
  recordFinding({
    promise: 'P13',
    what: 'every endpoint by every foreign id',
    wanted: 'every endpoint x every foreign id: 403 or 404',
    figures,
    reached: figures.answered === 0 && figures.endpoints > 25 && figures.callsWithForeignIds > 100,
    again: 'make chaos PART=foreign-ids',
  });
});

describe('the export area', () => {
  const area = createExportArea(temporaryFolder());
  const users: Partial<Record<'owner' | 'colleague' | 'stranger' | 'nobody', Credentials>> = {};
  const links: string[] = [];
  const ids: Record<'finished' | 'canceled' | 'waiting', string> = { finished: '', canceled: '', waiting: '' };
  const rows: string[][] = [];
  const ownRows: string[][] = [];
  let listed = 0;
  let endpoints: Endpoint[] = [];
  let stage: Stage;

  const user = (name: keyof typeof users): Credentials => users[name] ?? { idUser: '0', secret: 'x' };
  const port = (): number => stage.port ?? 0;
  const call = (caller: Credentials, target: string, verb = 'get', body?: string): Promise<Answer> =>
    send(port(), target, {
      method: verb.toUpperCase(),
      headers: { authorization: basic(caller) },
      ...(body === undefined ? {} : { body }),
    });
  const isOpen = ({ path }: Endpoint): boolean => openToAll.some((pattern) => pattern.test(path));
  /** Returns the name of the parameter that takes the id of a request. */
  const idName = ({ operation }: Endpoint): string | undefined =>
    operation.parameters?.find(({ name }) => /^id(RawExport|ReportFile)$/.test(name))?.name;

  beforeAll(async () => {
    await area.addApp({ idApp: 7, platform: 'web', idAccount: 1, sdkKey: 'own', idProject: 5 });
    await area.addApp({ idApp: 8, platform: 'web', idAccount: 2, sdkKey: 'strange', idProject: 6 });
    for (const [name, idAccount] of [
      ['owner', 1],
      ['colleague', 1],
      ['stranger', 2],
      ['nobody', 3],
    ] as const)
      users[name] = await area.addUser({ name, idAccount });
    await writeLake(area.tableDir, [[event('own', 7), event('strange', 8)]]);
    const first = await area.start();
    ids.finished = await first.create(user('owner'), query);
    const data = await first.waitForEnd(user('owner'), ids.finished);
    links.push(...(data.files ?? []).map(({ link }) => targetOf(link)));
    rows.push(
      ...(await Promise.all(foreignFilters.map((filter) => first.export(user('owner'), `${query}&${filter}`)))),
    );
    ownRows.push(
      ...(await Promise.all((['owner', 'stranger'] as const).map((name) => first.export(user(name), query)))),
    );
    listed = ((await first.call(user('owner'), list)).json?.data?.reports ?? []).length;
    await first.stop();

    // No worker runs from here on: created requests wait.
    const config = {
      ...parseConfig({
        TRIBUTARY_DATA_DIR: area.dataDir,
        TRIBUTARY_API_PORT: '0',
        TRIBUTARY_QUOTA_USER: 'off',
        TRIBUTARY_QUOTA_IP: 'off',
      }),
      exportWorkers: 0,
    };
    stage = await startStage('export', { config, entry: '', logger: silentLogger, metrics: createMetrics() });
    for (const name of ['canceled', 'waiting'] as const)
      ids[name] = String((await call(user('owner'), create, 'post', query)).json?.data?.idRawExport);
    await call(user('owner'), `/api/raw/v1/export/cancel.json?idRawExport=${ids.canceled}`);
    const reference = (await send(port(), '/openapi.json')).json as unknown as {
      paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>;
    };
    endpoints = Object.entries(reference.paths).flatMap(([path, operations]) =>
      path.startsWith('/v1/')
        ? []
        : Object.entries(operations)
            .filter(([verb]) => /^[a-z]+$/.test(verb) && verb !== 'servers')
            .map(([verb, operation]) => ({ verb, path, operation })),
    );
    figures.endpoints += endpoints.length;
  });
  afterAll(() => stage.stop());

  it('The API reference declares no endpoint open beyond the known ones', () => {
    const guarded = endpoints.filter((endpoint) => !isOpen(endpoint));
    expect(
      guarded.filter(({ operation, path }) => operation.security?.length === 0 && !path.startsWith('/files/')),
    ).toEqual([]);
    expect(guarded.length).toBeGreaterThan(8);
    figures.endpointsByForeignId = guarded.filter((endpoint) => idName(endpoint) !== undefined).length;
    expect(figures.endpointsByForeignId).toBe(6);
  });

  it('Every endpoint of the export area refuses every caller without valid authorization', async () => {
    const foreign = user('owner');
    const headers: Record<string, string>[] = [
      {},
      { authorization: '' },
      { authorization: basic({ ...foreign, secret: user('stranger').secret }) },
      { authorization: authHmac(foreign, 'GET', 'http://127.0.0.1/other') },
      { authorization: basic({ idUser: '999', secret: foreign.secret }) },
    ];
    for (const endpoint of endpoints.filter((one) => !isOpen(one) && !one.path.startsWith('/files/'))) {
      for (const id of Object.values(ids)) {
        for (const header of headers) {
          const answer = await send(port(), `${endpoint.path}?${idName(endpoint) ?? 'idRawExport'}=${id}`, {
            method: endpoint.verb.toUpperCase(),
            headers: header,
          });
          figures.callsWithoutRight += 1;
          expectRefused(answer, [403], `${endpoint.verb} ${endpoint.path}`);
          expect(answer.json).toEqual(accessDenied);
        }
      }
    }
  });

  it('No endpoint of the export area reveals a finished, waiting or cancelled request to another account', async () => {
    const unknown = [
      '',
      '0',
      '-1',
      '01',
      '1.0',
      '1e0',
      'abc',
      '999999',
      '99999999999999999999',
      '%31%00',
      '../1',
      '1%2c2',
      '%D9%A3',
      '__proto__',
    ];
    for (const endpoint of endpoints) {
      const name = idName(endpoint);
      if (name === undefined) continue;
      for (const caller of [user('stranger'), user('nobody')]) {
        for (const id of [...Object.values(ids), ...unknown]) {
          const forms = [
            call(caller, `${endpoint.path}?${name}=${id}`, endpoint.verb),
            ...(endpoint.verb === 'post' ? [call(caller, endpoint.path, 'post', `${name}=${id}`)] : []),
          ];
          for (const answer of await Promise.all(forms)) {
            figures.callsWithForeignIds += 1;
            expectRefused(answer, [404], `${endpoint.verb} ${endpoint.path} ${id}`);
            expect(answer.body.toString()).not.toMatch(/own|customEvents|link/);
          }
        }
      }
      // Its own users find the same request, so the id was right. A malformed or unknown id belongs to no user, and two
      // ids are rejected.
      expect((await call(user('owner'), `${endpoint.path}?${name}=${ids.finished}`, endpoint.verb)).status).not.toBe(
        404,
      );
      for (const id of [...unknown, `${ids.finished}&${name}=${ids.waiting}`])
        expectRefused(
          await call(user('owner'), `${endpoint.path}?${name}=${id}`, endpoint.verb),
          [404],
          `${endpoint.path} ${id}`,
        );
    }
    const stillWaits = await call(user('colleague'), `/api/raw/v1/export/get.json?idRawExport=${ids.waiting}`);
    expect(stillWaits.json?.data).toMatchObject({ status: 'In progress' });
  });

  it("The export area lists to each user only that user's own requests", async () => {
    // Besides the requests listed before: the cancelled one, the waiting one, and one export of the other account.
    for (const [name, own] of [
      ['owner', listed + 2],
      ['colleague', 0],
      ['stranger', 1],
      ['nobody', 0],
    ] as const) {
      expect((await call(user(name), list)).json?.data?.reports).toHaveLength(own);
    }
  });

  it('An export contains no row of another account, regardless of its filters', () => {
    figures.callsWithForeignIds += rows.length;
    figures.answered += rows.flat().filter((text) => text.includes('strange')).length;
    expect(rows).toEqual(foreignFilters.map(() => ['eventId\n']));
    expect(ownRows).toEqual([['eventId\nown\n'], ['eventId\nstrange\n']]);
  });

  it("The export area serves a file only by its own signed link, to any caller, and never under another request's id or name", async () => {
    for (const { verb, path } of endpoints.filter((endpoint) => endpoint.path.startsWith('/files/'))) {
      for (const link of links) {
        const [file = '', signed = ''] = link.split('?');
        for (const target of [
          file,
          `${file}?`,
          `${path}?${signed}`,
          link.replace(/\/files\/\d+\//, `/files/${ids.waiting}/`),
          link.replace(/\.csv/, '.zip'),
        ]) {
          for (const caller of [user('owner'), user('stranger')]) {
            figures.callsWithForeignIds += 1;
            expectRefused(await call(caller, target, verb), [403], `${verb} ${target}`);
          }
        }
        expect((await send(port(), link, { method: verb.toUpperCase() })).status).toBe(200);
      }
    }
  });
});

describe('the import area', () => {
  let service: TestIngest;
  const folder = temporaryFolder();
  const methods = [
    'registration',
    'login',
    'customEvent',
    'registrationBatch',
    'loginBatch',
    'customEventBatch',
    'test-app-access',
  ];

  beforeAll(async () => void (service = await startTestIngest(folder)));
  afterAll(() => service.stop());

  it("The import area stores nothing under an app's id with the token of another app, or with none, by any method", async () => {
    figures.endpoints += methods.length;
    for (const method of methods) {
      const body = JSON.stringify(
        method.endsWith('Batch') ? [{ customUserId: 'u' }] : { customUserId: 'u', customEventName: 'e' },
      );
      for (const platform of platforms) {
        const strange = [
          ...platforms.filter((other) => other !== platform).map((other) => service.tokens[other]),
          '',
          'x',
          `Bearer ${service.tokens[platform]}`,
          service.tokens[platform].slice(1),
          `${service.tokens[platform]}x`,
        ];
        for (const token of strange) {
          const answer = await ask(`${service.url}/v1/${method}/?idApp=${testApps[platform]}`, {
            method: 'POST',
            headers: { authorization: token },
            body,
          });
          figures.callsWithForeignIds += 1;
          expectRefused(answer, [403], `${method} of ${platform}`);
        }
        for (const id of ['', '0', '-1', '999', '1e0', `0${testApps[platform]}`, `${testApps[platform]}&idApp=999`]) {
          const answer = await ask(`${service.url}/v1/${method}/?idApp=${id}`, {
            method: 'POST',
            headers: { authorization: service.tokens[platform] },
            body,
          });
          figures.callsWithForeignIds += 1;
          expectRefused(answer, [403], `${method} for ${id}`);
        }
      }
    }
    expect(await service.newLines()).toEqual([]);
  });
});

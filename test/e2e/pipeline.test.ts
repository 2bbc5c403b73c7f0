import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { openLakeReader } from '../../src/demo/demo-report.ts';
import { basic, type Credentials } from '../helpers/export-area.ts';
import { temporaryFolder } from '../helpers/folder.ts';
import { addTestApp, addTestUser } from '../helpers/service-access.ts';
import { startTestService, type TestService } from '../helpers/service.ts';
import { waitFor } from '../helpers/wait.ts';

const folder = temporaryFolder();
const linkTtlSeconds = 3;
let service: TestService;
let token: string;
let user: Credentials;

beforeAll(async () => {
  const dataDir = path.join(folder, 'data');
  token = await addTestApp(dataDir);
  user = await addTestUser(dataDir);
  service = await startTestService({
    dataDir,
    settings: {
      TRIBUTARY_INGEST_WORKERS: '2',
      TRIBUTARY_LINK_TTL_SECONDS: String(linkTtlSeconds),
      TRIBUTARY_QUOTA_USER: 'off',
    },
  });
});

afterAll(async () => {
  await service.destroy();
});

function post(method: string, body: string): Promise<Response> {
  return fetch(`${service.s2s}/v1/${method}/?idApp=1`, { method: 'POST', headers: { authorization: token }, body });
}

interface Envelope {
  readonly code: number;
  readonly data: {
    readonly idRawExport?: string;
    readonly status?: string;
    readonly files?: readonly { readonly link: string; readonly timestampExpires: string }[];
  };
}

async function call(target: string): Promise<Envelope> {
  const response = await fetch(`${service.api}${target}`, { headers: { authorization: basic(user) } });
  return (await response.json()) as Envelope;
}

describe('the pipeline', () => {
  it('The pipeline accepts an event, shows it in the lake within ten seconds, exports it, and expires its link on time', async () => {
    const answer = await post(
      'customEvent',
      JSON.stringify({
        customUserId: 'u-1',
        customEventName: 'level "up", at last',
        customEventParams: { level: '3', note: "it's\nhere" },
      }),
    );
    expect(answer.status).toBe(200);
    expect(await answer.json()).toEqual({ message: expect.any(String) });

    // The lake, by plain DuckDB through snapshot.sql.
    await waitFor(
      'the row is in the lake',
      async () => {
        const lake = await openLakeReader(service.dataDir);
        try {
          const rows = await lake.query('SELECT custom_user_id AS user, custom_event_name AS name FROM custom_event');
          return rows.length === 1 && rows[0]?.['name'] === 'level "up", at last';
        } finally {
          lake.close();
        }
      },
      10_000,
    );

    // The export, through the API.
    const today = new Date().toISOString().slice(0, 10);
    const created = await call(
      `/api/raw/v1/export/create.json?event=customEvents&selectors=customUserId,eventName,params.name,params.value&dateFrom=${today}&dateTo=${today}&timezone=UTC`,
    );
    expect(created.code).toBe(200);
    let report: Envelope | undefined;
    await waitFor('the export is ready', async () => {
      report = await call(`/api/report/v1/file/get.json?idReportFile=${created.data.idRawExport}`);
      return report.data.status !== 'In progress';
    });
    expect(report?.data.status).toBe('Success!');
    const [file] = report?.data.files ?? [];
    const link = file?.link ?? '';

    // The download needs only the link.
    const download = await fetch(link);
    expect(download.status).toBe(200);
    expect(await download.text()).toBe(
      `customUserId,eventName,params.name,params.value\nu-1,"level ""up"", at last","['level','note']","['3','it\\'s\\nhere']"\n`,
    );

    // One character changed, in each part of the link that carries meaning.
    for (const [from, to] of [
      [/signature=./, 'signature=x'],
      [/\.csv/, '.csx'],
      [/expires=./, 'expires=2'],
      [/kid=./, 'kid=z'],
    ] as const) {
      expect((await fetch(link.replace(from, to))).status, String(from)).toBe(403);
    }

    // One second after its expiry, the link is rejected and the request is deleted.
    const expiresMs = Number(file?.timestampExpires) * 1000;
    await waitFor('the link has expired', () => Date.now() >= expiresMs + 1000);
    expect((await fetch(link)).status).toBe(403);
    await waitFor(
      'the request is deleted',
      async () => (await call(`/api/report/v1/file/get.json?idReportFile=${created.data.idRawExport}`)).code === 404,
    );
  });

  it('The pipeline reports liveness, readiness and metrics', async () => {
    for (const area of [service.s2s, service.api, service.ops]) {
      expect((await fetch(`${area}/healthz`)).status).toBe(200);
      await waitFor(
        `${area} says that the service is ready`,
        async () => (await fetch(`${area}/readyz`)).status === 200,
      );
    }
    await waitFor('the metrics of ingest and export are there', async () => {
      const text = await (await fetch(`${service.ops}/metrics`)).text();
      return (
        text.includes('tributary_ingest_') && text.includes('tributary_export_') && text.includes('tributary_compact_')
      );
    });
    // Metrics have apps and volumes, and are not on a public port.
    expect((await fetch(`${service.s2s}/metrics`)).status).toBe(404);
    expect((await fetch(`${service.api}/metrics`)).status).toBe(404);
  });
});

describe('access', () => {
  it('Access that is added while the service runs is effective in every process within about a second', async () => {
    const added = await service.command('app', 'add', '2', '--platform', 'web');
    const ask = (): Promise<Response> =>
      fetch(`${service.s2s}/v1/test-app-access/?idApp=2`, {
        method: 'POST',
        headers: { authorization: String(added['token']), connection: 'close' },
        body: 'true',
      });
    // Both workers share the port: many responses in a row come from both.
    await waitFor('ten responses in a row are 200', async () => {
      for (let turn = 0; turn < 10; turn += 1) if ((await ask()).status !== 200) return false;
      return true;
    });
    const prefix = String(added['token']).slice(0, 8);
    expect(await service.command('app', 'token', '2', '--revoke', prefix)).toEqual({ idApp: '2', revoked: prefix });
    await waitFor('the revoked token is rejected', async () => (await ask()).status === 403);
  });
});

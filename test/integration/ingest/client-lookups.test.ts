import path from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { addApp } from '../../../src/access/apps.ts';
import type { ClientDiagnosticsView } from '../../../src/ingest/diagnostics-routes.ts';
import { testFolder } from '../../helpers/folder.ts';
import { ask, startTestIngest, testApps } from '../../helpers/ingest.ts';
import { waitFor } from '../../helpers/wait.ts';

const clientDiagnosticsView: ClientDiagnosticsView = {
  readRefusals: () => Promise.resolve({ refusals: [] }),
  hub: {
    serve: () => Promise.resolve('away'),
    check: () => undefined,
    size: () => 0,
    close: () => undefined,
  },
};

describe('how often senders may ask what was refused', () => {
  it('An account whose apps all exceed their limits leaves the others their share', async () => {
    const folder = testFolder();
    const service = await startTestIngest(folder, { clientDiagnosticsView });
    onTestFinished(() => service.stop());
    const paths = { access: path.join(folder, 'access.json'), keys: path.join(folder, 'keys') };
    const other = await addApp(paths, { idApp: 9, platform: 'web', idAccount: 2 }, Date.now());
    const statusOf = async (idApp: number, authorization: string, where = 'refusals', method = 'GET') =>
      (await ask(`${service.url}/v1/${where}?idApp=${idApp}`, { method, headers: { authorization } })).status;
    await waitFor(
      'the other app is known',
      async () => (await statusOf(9, other.token, 'test-app-access', 'POST')) === 200,
    );
    const tokens = Object.entries(service.tokens) as [keyof typeof testApps, string][];
    const asked = tokens.flatMap(([platform, token]) =>
      Array.from({ length: 20 }, () => statusOf(testApps[platform], token)),
    );
    const others = Array.from({ length: 10 }, () => statusOf(9, other.token));
    expect(new Set(await Promise.all(asked))).toEqual(new Set([200, 429]));
    expect(new Set(await Promise.all(others))).toEqual(new Set([200]));
  });
});

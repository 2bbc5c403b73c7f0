import { execFile } from 'node:child_process';
import { existsSync, readdirSync } from 'node:fs';
import { request } from 'node:http';
import path from 'node:path';
import { promisify } from 'node:util';
import { describe, expect, it } from 'vitest';
import { inWholeRun } from '../helpers/in-turn.ts';
import { addTestApp, startWithApp } from '../helpers/service-access.ts';
import { testFolder } from '../helpers/folder.ts';
import { waitFor } from '../helpers/wait.ts';

const program = path.resolve(import.meta.dirname, '../../dist/main.js');
const run = promisify(execFile);

async function renewToken(dataDir: string): Promise<string> {
  const { stdout } = await run(process.execPath, [program, 'key', 'operator', '--data', dataDir]);
  return (JSON.parse(stdout) as { operatorToken: string }).operatorToken;
}

const file = 'eventId,tsEvent,idApp,idCampaign\na,1750000000,1,66\nb,1750000001,1,67\n';

describe('POST /api/load/v1/<dataset>', () => {
  it('A file posted with the operator’s token is loaded atomically and once, with the results of the command', async ({
    skip,
  }) => {
    inWholeRun(skip);
    const dataDir = path.join(testFolder(), 'data');
    const { service } = await startWithApp({ dataDir });
    try {
      await addTestApp(dataDir, '2');
      const before = await renewToken(dataDir);
      const token = await renewToken(dataDir);
      const post = async (
        to: string,
        body: string,
        headers: Record<string, string> = {},
      ): Promise<[number, unknown]> => {
        const response = await fetch(`${service.ops}/api/load/v1/${to}`, {
          method: 'POST',
          body,
          headers: { authorization: `Bearer ${token}`, 'content-type': 'text/csv', ...headers },
        });
        return [response.status, await response.json()];
      };
      expect(await post('installs', file, { authorization: `Bearer ${before}` })).toMatchObject([401, {}]);
      expect(await post('events', file)).toMatchObject([404, {}]);
      // A truncated body is rejected, even if its rows are complete.
      const half = request(`${service.ops}/api/load/v1/installs`, {
        method: 'POST',
        headers: { authorization: `Bearer ${token}`, 'content-type': 'text/csv', 'content-length': '1000' },
      });
      half.on('error', () => undefined);
      half.write(file);
      const loads = path.join(dataDir, 'lake/staging/installs');
      await waitFor('the load has started', () => existsSync(loads) && readdirSync(loads).length > 0);
      expect(await post('installs', file)).toMatchObject([409, {}]);
      half.destroy();
      await new Promise((resolve) => half.once('close', resolve));
      await expect
        .poll(() => post('installs', file), { timeout: 20_000, interval: 200 })
        .toMatchObject([200, { rows: 2, stored: 2, repeats: 0, failed: 0 }]);
      expect(await post('installs', file)).toMatchObject([200, { stored: 0, loadedBefore: true }]);
      const other = '{"when":1750000002,"idCampaign":"many"}\n{"when":1750000003}\n';
      const map = `installs?app=2&map=${encodeURIComponent('{"when":"tsEvent"}')}`;
      const ndjson = { 'content-type': 'application/x-ndjson' };
      expect(await post(map, other, ndjson)).toMatchObject([
        400,
        { refused: { reason: 'bad_rows' }, bad: [{ line: 1, field: 'idCampaign' }] },
      ]);
      expect(await post(`${map}&maxBad=1`, other, ndjson)).toMatchObject([200, { rows: 2, stored: 1, failed: 1 }]);
      expect(await post('installs?maxbad=1&rows=2', file)).toEqual([
        400,
        {
          error:
            'Unknown query parameters: maxbad, rows. Expected: app, maxBad, map, format, allowEmpty, restoreErased.',
        },
      ]);
      expect(await post('installs', '')).toMatchObject([400, { refused: { reason: 'empty_file' } }]);
      expect(await post('installs?allowEmpty=true', '')).toMatchObject([200, { rows: 0, stored: 0, bad: 0 }]);
      expect(await post('installs?allowEmpty=maybe', '')).toMatchObject([400, { code: 'usage' }]);
      const noObject = [400, { refused: { reason: 'bad_rows' }, bad: [{ line: 1, reason: 'bad_json' }] }];
      expect(await post('installs', 'null\n', ndjson)).toMatchObject(noObject);
      expect(await post('installs?maxBad=many', file)).toMatchObject([
        400,
        { error: expect.stringContaining('max-bad') as string },
      ]);
      // Nothing was erased, and a load that restores erased rows is a different one.
      expect(await post('installs?restoreErased=true', file)).toMatchObject([200, { rows: 2, stored: 0, repeats: 2 }]);
      expect(await post('installs?restoreErased=perhaps', file)).toMatchObject([
        400,
        { error: expect.stringContaining('restore-erased') as string },
      ]);
    } finally {
      await service.stop();
    }
  }, 120_000);
});

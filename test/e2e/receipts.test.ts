import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { readSnapshot } from '../../src/lake/log/snapshot.ts';
import { packageRoot } from '../../src/runtime/files/package-files.ts';
import { waitUntilWorkedOff } from '../helpers/accounting.ts';
import { temporaryFolder } from '../helpers/folder.ts';
import { oneTestIn } from '../helpers/in-turn.ts';
import { addTestApp } from '../helpers/service-access.ts';
import { startTestService, type TestService } from '../helpers/service.ts';
import { makeShell, noCurl } from '../helpers/shell.ts';
import { waitFor } from '../helpers/wait.ts';

beforeEach(oneTestIn(2));

/** The commands of docs/verification.md's section on receipts. */
function readExample(): string {
  const page = readFileSync(path.join(packageRoot, 'docs/verification.md'), 'utf8');
  return /^## Receipts$.*?^```sh\n(.*?)^```$/ms.exec(page)?.[1] ?? '';
}

const readKeys = (dataDir: string): string => readFileSync(path.join(dataDir, 'keys/receipts.json'), 'utf8');

describe('receipts of a running service', () => {
  const folder = temporaryFolder();
  const dataDir = path.join(folder, 'data');
  const shell = makeShell(folder);
  let service: TestService;
  let token: string;
  /** The lines that the example prints, which writes receipt.json. */
  let output: readonly string[] = [];

  beforeAll(async () => {
    token = await addTestApp(dataDir);
    service = await startTestService({ dataDir, settings: { TRIBUTARY_INGEST_WORKERS: '2' } });
    if (noCurl !== false) return;
    output = (await sh(readExample().replaceAll('http://127.0.0.1:8080', service.s2s), await getKey())).split('\n');
    await waitUntilWorkedOff(service);
  });
  afterAll(() => service.destroy());

  const sh = (commands: string, key = ''): Promise<string> =>
    shell(commands, { TOKEN: token, KEY: key, DATA: dataDir });
  const getKey = async (): Promise<string> =>
    (JSON.parse(await sh(`curl -s ${service.s2s}/v1/receipt-key`)) as { readonly key: string }).key;
  const verify = async (words: string): Promise<Record<string, unknown>> =>
    JSON.parse(await sh(`tributary verify receipt.json ${words} || true`)) as Record<string, unknown>;

  it('The documented example gets a receipt, verifies it with its body, and finds its event in the lake', async (ctx) => {
    if (noCurl !== false) ctx.skip(noCurl);
    const [keys, offline, inLake] = output.slice(0, 3).map((line) => JSON.parse(line) as Record<string, unknown>);
    expect(keys).toMatchObject({ algorithm: 'Ed25519', key: await getKey() });
    expect(offline).toMatchObject({ ok: true, trusted: true, body: { ok: true }, receipt: { idApp: 1, events: 1 } });
    expect(inLake).toMatchObject({ ok: true, trusted: true, lake: { table: 'events' } });
    const { lake } = (await verify(`--data ${dataDir}`)) as { lake: { events: unknown[] } };
    expect(lake.events).toMatchObject([{ state: 'stored', sinceVersion: expect.any(Number) }]);
    const { lake: log } = await readSnapshot(path.join(dataDir, 'lake/events'));
    expect(offline).toMatchObject({ receipt: { stream: log?.epoch?.streamId ?? 'none' } });
    const copied = await verify(`--lake ${dataDir}/lake`);
    expect(copied).toMatchObject({ ok: false, trusted: false, lake: { events: [{ state: 'stored' }] } });
  });

  it('After a key rotation, earlier receipts verify, every import process signs with the new key, and a backup has both keys', async (ctx) => {
    if (noCurl !== false) ctx.skip(noCurl);
    const { key, retired } = JSON.parse(await sh(`tributary key receipts --data ${dataDir}`)) as {
      readonly key: string;
      readonly retired: readonly string[];
    };
    expect(retired).toHaveLength(1);
    const send = `curl -s -X POST '${service.s2s}/v1/login/?idApp=1' -H "Authorization: $TOKEN" -H 'Prefer: receipt' -d '{"customUserId":"u"}'`;
    const signers = async (): Promise<Set<unknown>> => {
      const answers = (await sh(`for n in 1 2 3 4 5 6 7 8; do ${send}; echo; done`)).trim().split('\n');
      return new Set(
        answers.map((text) => (JSON.parse(text) as { receipt: { group: { key: string } } }).receipt.group.key),
      );
    };
    await waitFor('the new key signs', async () => {
      const found = await signers();
      return found.size === 1 && found.has(key);
    });
    expect(await verify(`--data ${dataDir}`)).toMatchObject({ ok: true, trusted: true, receipt: { key: retired[0] } });
    await sh(`tributary backup ${folder}/backup --data ${dataDir}`);
    await sh(`tributary restore ${folder}/backup --data ${folder}/restored`);
    expect(readKeys(path.join(folder, 'restored'))).toBe(readKeys(dataDir));
    const restored = await verify(`--data ${folder}/restored`);
    expect(restored).toMatchObject({ ok: true, trusted: true, lake: { events: [{ state: 'stored' }] } });
  });

  it('A receipt with another event id, and one of unknown events, end with exit code 1 or an error', async (ctx) => {
    if (noCurl !== false) ctx.skip(noCurl);
    const text = readFileSync(path.join(folder, 'receipt.json'), 'utf8');
    writeFileSync(path.join(folder, 'forged.json'), text.replace(/"eventId":"./, '"eventId":"f'));
    const forged = await sh('tributary verify forged.json 2>&1 || echo "exit $?"');
    expect(forged).toContain('the receipt does not match its signature');
    expect(forged).toContain('exit 1');
    const usage = await sh('tributary verify receipt.json receipt.json --lake x 2>&1 || echo "exit $?"');
    expect(usage).toContain('--lake needs a receipt');
  });
});

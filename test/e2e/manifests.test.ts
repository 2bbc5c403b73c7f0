import { appendFileSync, readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { expect, it } from 'vitest';
import { packageRoot } from '../../src/runtime/files/package-files.ts';
import { waitUntilWorkedOff } from '../helpers/accounting.ts';
import { testFolder } from '../helpers/folder.ts';
import { startWithUser } from '../helpers/service-access.ts';
import { makeShell, noCurl } from '../helpers/shell.ts';

/** The commands of docs/verification.md's section on manifests. */
function readExample(): string {
  const page = readFileSync(path.join(packageRoot, 'docs/verification.md'), 'utf8');
  return /^## Manifests$.*?^```sh\n(.*?)^```$/ms.exec(page)?.[1] ?? '';
}

it('The documented example creates an export and verifies its files, and detects a changed or missing part', async (ctx) => {
  if (noCurl !== false) ctx.skip(noCurl);
  const folder = testFolder();
  const { service, token, user } = await startWithUser({ dataDir: path.join(folder, 'data') });
  const shell = makeShell(folder);
  const variables = { TOKEN: token, TRIBUTARY_USER: user.idUser, TRIBUTARY_SECRET: user.secret };
  await shell(
    `curl -sf -X POST '${service.s2s}/v1/customEvent/?idApp=1' -H "Authorization: $TOKEN" -d '{"customUserId":"u","customEventName":"paid"}'`,
    variables,
  );
  await waitUntilWorkedOff(service);
  const served = await shell(`curl -sf ${service.api}/manifest-key.json`, variables);
  const { key } = (JSON.parse(served) as { readonly data: { readonly key: string } }).data;
  const sh = (commands: string): Promise<string> => shell(commands, { ...variables, KEY: key });
  const verify = async (words: string): Promise<unknown> => JSON.parse(await sh(`tributary verify ${words} || true`));

  const output = await sh(readExample().replaceAll('http://127.0.0.1:8081', service.api));
  const [answered, exported, verified] = output
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line) as unknown);
  expect(answered).toMatchObject({ data: { algorithm: 'Ed25519', key } });
  expect(exported).toMatchObject({ rows: 1 });
  expect(verified).toMatchObject({
    ok: true,
    trusted: true,
    files: [{ ok: true, rows: 1 }],
    missing: [],
    export: { event: 'customEvents', rows: 1, key },
  });
  // The service is not needed.
  await service.stop();
  expect(await verify('report/* --any-key')).toMatchObject({ ok: true, trusted: false });
  const part = readdirSync(path.join(folder, 'report')).find((name) => name.endsWith('.csv')) ?? '';
  appendFileSync(path.join(folder, 'report', part), '\n');
  expect(await verify('report/*')).toMatchObject({
    ok: false,
    files: [{ why: 'its content differs' }],
    missing: [part],
  });
}, 120_000);

import { execFile, spawnSync } from 'node:child_process';
import { mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { packageRoot } from '../../src/runtime/files/package-files.ts';
import { isLongRun } from '../helpers/chaos.ts';
import { temporaryFolder } from '../helpers/folder.ts';
import { inWholeRun, oneTestIn } from '../helpers/in-turn.ts';
import { findPythonClient, findPythonGenerator } from '../helpers/python-engines.ts';
import { startTestService, type TestService } from '../helpers/service.ts';
import { addTestApp, addTestUser } from '../helpers/service-access.ts';
import { waitFor } from '../helpers/wait.ts';

const run = promisify(execFile);
const root = temporaryFolder();
const dataDir = path.join(root, 'data');
const event = { customUserId: 'u-1', customEventName: 'level_up', customEventParams: { level: '3' } };
const hasPhp = spawnSync('php', ['--version']).status === 0;
const today = new Date().toISOString().slice(0, 10);

/** The first block of a language in a section of a page, or in the whole page. */
function readBlock(page: string, language: string, section = ''): string {
  const text = readFileSync(path.join(packageRoot, 'docs', page), 'utf8');
  const [, block = ''] =
    new RegExp(`^\`\`\`${language}\\n(.*?)^\`\`\`$`, 'ms').exec(text.slice(text.indexOf(section))) ?? [];
  return block;
}

// One service and one event: each client orders the same rows.
describe('clients', () => {
  let service: TestService;
  let token: string;
  let settings: Record<string, string>;
  /** On a new machine it is installed while the other clients are tried, and tried last. */
  const client = findPythonClient();

  beforeAll(async () => {
    token = await addTestApp(dataDir);
    service = await startTestService({ dataDir, settings: { TRIBUTARY_FLUSH_AGE_MS: '200' } });
    const answer = await fetch(`${service.s2s}/v1/customEvent/?idApp=1`, {
      method: 'POST',
      headers: { authorization: token },
      body: JSON.stringify(event),
    });
    await answer.text();
    await waitFor('the event is in the lake', async () => {
      const { rows } = (await service.status())['lake'] as { rows: number };
      return rows === 1;
    });
    const [, ...words] = readBlock('clients-python.md', 'sh').trim().split(' ');
    const user = await service.command(...words);
    settings = {
      PATH: process.env['PATH'] ?? '',
      TRIBUTARY_EXPORT_URL: service.api,
      TRIBUTARY_USER: String(user['idUser']),
      TRIBUTARY_SECRET: String(user['secret']),
      DATE_FROM: '2024-01-01',
      DATE_TO: today,
    };
  });
  afterAll(() => service.destroy());

  it.for([
    ['Without a package', undefined],
    ['With the public client', process.env['TRIBUTARY_TEST_PHP_CLIENT'] ?? ''],
  ] as const)('The PHP program of its page exports the rows: %s', async ([section, vendor], ctx) => {
    ctx.skip(!hasPhp, 'no php on this machine (apt-get install php-cli)');
    ctx.skip(vendor === '', 'TRIBUTARY_TEST_PHP_CLIENT does not name a vendor folder with the client of Packagist');
    const folder = path.join(root, section.replaceAll(' ', '-'));
    mkdirSync(folder);
    if (vendor !== undefined) symlinkSync(vendor, path.join(folder, 'vendor'));
    writeFileSync(path.join(folder, 'export.php'), readBlock('clients-php.md', 'php', `\n## ${section}\n`));
    const { stdout } = await run('php', ['export.php'], { env: settings, cwd: folder });
    // The other clients have imported too.
    expect(stdout).toMatch(/^tsEvent,customUserId,eventName\n(?:\d+,u-[12],level_up\n)+$/);
  });

  it('A client of another OpenAPI generator imports and exports, unchanged', async (ctx) => {
    inWholeRun(ctx.skip);
    const python = await findPythonGenerator();
    ctx.skip(python === undefined, 'no Python with the generator on this machine');
    const document = path.join(root, 'openapi.json');
    writeFileSync(document, await (await fetch(`${service.api}/openapi.json`)).text());
    writeFileSync(path.join(root, 'generator.yml'), 'post_hooks: []\n');
    const words = ['--path', document, '--output-path', path.join(root, 'made'), '--meta', 'none'];
    const generate = ['-m', 'openapi_python_client', 'generate', ...words];
    const made = await run(python ?? '', [...generate, '--config', path.join(root, 'generator.yml')]);
    expect(made.stdout + made.stderr).not.toMatch(/warning|error/i);
    writeFileSync(path.join(root, 'use.py'), useOfGenerated);
    const { stdout } = await run(python ?? '', [path.join(root, 'use.py')], {
      env: { ...settings, TOKEN: token, TRIBUTARY_IMPORT_URL: service.s2s },
    });
    expect(stdout).toMatch(/^Ok\nfiles 1, rows [12]\neventName\nlevel_up\n/);
  }, 600_000);

  it('The TypeScript client of the package imports and exports as documented, and its types match', async () => {
    const folder = path.join(root, 'sender');
    mkdirSync(path.join(folder, 'node_modules/@types'), { recursive: true });
    symlinkSync(packageRoot, path.join(folder, 'node_modules/tributary'));
    symlinkSync(path.join(packageRoot, 'node_modules/@types/node'), path.join(folder, 'node_modules/@types/node'));
    const block = readBlock('clients-typescript.md', 'js');
    const own = block.replace('http://127.0.0.1:8080', service.s2s).replace('http://127.0.0.1:8081', service.api);
    writeFileSync(path.join(folder, 'sender.mjs'), own);
    const { idUser: USER_ID, secret: SECRET } = await addTestUser(dataDir);
    const { stdout } = await run(process.execPath, ['sender.mjs'], {
      cwd: folder,
      env: { TOKEN: token, USER_ID, SECRET },
    });
    expect(stdout).toMatch(
      /^customUserId,eventName\n(?:u-[12],level_up\n)+\nrawExportGet 404 Raw export request not found undefined\n$/,
    );

    const mistakes = own
      .replace('idApp: 1', "idApp: 'one'")
      .replace("data.status === 'In progress'", "data.status === 'Busy'")
      .replace("'999'", '999');
    writeFileSync(path.join(folder, 'mistakes.mjs'), mistakes);
    const compiler = path.join(packageRoot, 'node_modules/typescript/bin/tsc');
    const rules = '--noEmit --allowJs --checkJs --strict --target es2023 --types node --module nodenext'.split(' ');
    const checked = spawnSync(process.execPath, [compiler, ...rules, 'sender.mjs', 'mistakes.mjs'], {
      cwd: folder,
      encoding: 'utf8',
    });
    const faults = [...checked.stdout.matchAll(/^(.*)\(\d+,\d+\): error (TS\d+)/gm)];
    expect(faults.map(([, file, code]) => `${file} ${code}`)).toEqual([
      'mistakes.mjs TS2322',
      'mistakes.mjs TS2367',
      'mistakes.mjs TS2322',
    ]);
    expect(checked.stdout.match(/error TS/g)).toHaveLength(faults.length);
  });

  it('The TypeScript client has every operation of the OpenAPI document, and requires the addresses that it needs', async () => {
    const { createClient } = (await import(path.join(packageRoot, 'dist/client/index.mjs'))) as {
      createClient: (options: object) => Readonly<Record<string, (given?: object) => Promise<unknown>>>;
    };
    const document = (await (await fetch(`${service.api}/openapi.json`)).json()) as {
      paths: Readonly<Record<string, Readonly<Record<string, { operationId?: string }>>>>;
    };
    const names = Object.values(document.paths)
      .flatMap((verbs) => Object.values(verbs).flatMap(({ operationId }) => operationId ?? []))
      .filter((name) => !/By(?:Get|Head)$/.test(name));
    expect(Object.keys(createClient({})).toSorted()).toEqual(names.toSorted());
    await expect(createClient({})['version']?.()).rejects.toThrow('version needs importUrl');
    expect(await createClient({ importUrl: `${service.s2s}/` })['version']?.()).toHaveProperty('version');
  });

  it('The public Python client runs unchanged with the settings of its page', async (ctx) => {
    const python = await client;
    ctx.skip(python === undefined, 'no Python with the client on this machine');
    const script = path.join(root, 'export.py');
    writeFileSync(script, readBlock('clients-python.md', 'python'));
    const { stdout } = await run(python ?? '', [script], { env: settings });
    // The other clients have imported too.
    expect(stdout).toMatch(/^tsEvent,customUserId,eventName\n(?:\d+,u-[12],level_up\n)+$/);
    // Half a minute in all, of which pandas takes most.
    const days = isLongRun ? ['2024-01-01'] : [];
    for (const day of days) {
      const { stdout: none } = await run(python ?? '', [script], { env: { ...settings, DATE_TO: day } });
      expect(none).toBe('tsEvent,customUserId,eventName\n');
    }
  }, 600_000);
});

/** What a user of the generated client writes. */
const useOfGenerated = `
import os, time
import httpx
from made import Client
from made.api.import_ import custom_event
from made.api.export import raw_export_create_by_get, raw_export_get
from made.models import CustomEvent

def to(name, **more):
    return Client(base_url=os.environ[name], **more)

sender = to("TRIBUTARY_IMPORT_URL", headers={"Authorization": os.environ["TOKEN"]})
body = CustomEvent.from_dict({"customUserId": "u-2", "customEventName": "level_up"})
print(custom_event.sync(client=sender, body=body, id_app=1).message)

analyst = to("TRIBUTARY_EXPORT_URL", httpx_args={"auth": (os.environ["TRIBUTARY_USER"], os.environ["TRIBUTARY_SECRET"])})
made = raw_export_create_by_get.sync(client=analyst, event="customEvents", selectors=["eventName"],
    date_from=os.environ["DATE_FROM"], date_to=os.environ["DATE_TO"], timezone="UTC", compression="none")
while True:
    export = raw_export_get.sync(client=analyst, id_raw_export=made.data.id_raw_export).data
    if export.status != "In progress":
        break
    time.sleep(0.5)
print(f"files {len(export.files)}, rows {export.files[0].rows}")
print(httpx.get(export.files[0].link).text)
`;

beforeEach(oneTestIn(2));

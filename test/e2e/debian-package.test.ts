import { execFile, spawnSync } from 'node:child_process';
import { appendFileSync, cpSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { packageRoot } from '../../src/runtime/files/package-files.ts';
import { createExportClient, exportQuery } from '../helpers/export-client.ts';
import { findFreePorts } from '../helpers/free-ports.ts';
import { isWhole } from '../helpers/in-turn.ts';
import { signalProcess } from '../helpers/processes.ts';
import { waitFor } from '../helpers/wait.ts';

/** The package of Debian: lintian's judgement, and its life in a system that has nothing else. */

const run = promisify(execFile);
/** Time to make the package, or a system, on a loaded machine, ms. */
const slowMs = 900_000;
const suites = ['bookworm', 'trixie'] as const;
const needed = ['mmdebstrap', 'lintian', 'dpkg-deb', 'strip', 'unshare'];
/** A folder on a disk that may have devices and set-user-id files. */
const folder = mkdtempSync(path.join(existsSync('/var/tmp') ? '/var/tmp' : tmpdir(), 'tributary-test-'));

/** Returns why the package cannot be tried here. */
function findObstacle(): string | undefined {
  if (!isWhole) return 'in the nightly run (TRIBUTARY_TEST_WHOLE=1)';
  if (process.getuid?.() !== 0) return 'a new system needs root';
  const missing = needed.filter((name) => spawnSync('sh', ['-c', `command -v ${name}`]).status !== 0);
  return missing.length === 0 ? undefined : `${missing.join(', ')} missing`;
}

const obstacle = findObstacle();
if (obstacle !== undefined) process.stderr.write(`skipped: the package of Debian is not tried: ${obstacle}\n`);

/** Runs a script in the system of a folder. Its programs see the processes of this machine. */
async function runIn(root: string, script: string): Promise<string> {
  const enter = 'mount --bind /proc "$0/proc" && exec chroot "$0" sh -ec "$1"';
  const { stdout } = await run('unshare', ['--mount', 'sh', '-c', enter, root, script], {
    timeout: slowMs,
    maxBuffer: 64 * 1024 * 1024,
  });
  return stdout;
}

/** Reads the block of the documented installation. */
function readBlock(): string {
  const page = readFileSync(path.join(packageRoot, 'docs/install.md'), 'utf8');
  const [, block = ''] = /^## Debian package\n.*?^```sh\n(.*?)\n^```$/ms.exec(page) ?? [];
  return block;
}

/** Starts the command of the unit as its user, in a system that systemd did not boot, and waits as the unit does. */
const serviceManager = (opsPort: number): string => `#!/bin/sh
[ "$*" = 'enable --now tributary' ] || exit 0
of() { sed -n "s/^$1=//p" /usr/lib/systemd/system/tributary.service; }
(
  cd /
  set -a
  . "$(of EnvironmentFile)"
  setpriv --reuid="$(of User)" --regid="$(of Group)" --init-groups env HOME=/var/lib/tributary $(of ExecStart) &
  echo $! > /root/pid
  wait $!
  echo $? > /root/exit
) > /root/service.log 2>&1 &
until curl --fail --silent --output /dev/null http://127.0.0.1:${opsPort}/readyz; do sleep 1; done
`;

/** The result of a command of the block. */
interface Answer {
  readonly token?: string;
  readonly idUser: string;
  readonly secret: string;
}

describe.runIf(obstacle === undefined)('the package of Debian', () => {
  let file = '';
  beforeAll(async () => {
    const { stdout } = await run(process.execPath, ['.build/deb.mjs', folder], { cwd: packageRoot, timeout: slowMs });
    file = stdout.trim();
  }, slowMs);
  afterAll(() => rmSync(folder, { recursive: true, force: true }), slowMs);

  it(
    'The package has no error that lintian knows',
    async () => {
      const { stdout } = await run('lintian', ['--no-tag-display-limit', '--fail-on=none', file], { timeout: slowMs });
      expect(stdout.split('\n').filter((line) => line.startsWith('E:'))).toEqual([]);
    },
    slowMs,
  );

  it.each(suites)(
    'In a system with nothing but %s, the package installs, its service imports and exports, and a removal leaves the data only',
    async (suite) => {
      const root = path.join(folder, suite);
      await run('mmdebstrap', ['--variant=minbase', '--include=ca-certificates', suite, root], {
        timeout: slowMs,
        maxBuffer: 64 * 1024 * 1024,
      });
      cpSync(file, path.join(root, 'root', path.basename(file)));
      const system = { sh: (script: string) => runIn(root, script) };
      const [install = '', ...others] = readBlock().split('\n');
      const named = `./${path.basename(file)}`;
      expect(install).toContain(named);
      await system.sh(`cd /root && apt-get update && ${install}`);
      const [s2sPort = 0, apiPort = 0, opsPort = 0] = await findFreePorts(3);
      appendFileSync(
        path.join(root, 'etc/tributary.env'),
        `TRIBUTARY_S2S_PORT=${s2sPort}\nTRIBUTARY_API_PORT=${apiPort}\nTRIBUTARY_OPS_PORT=${opsPort}\nTRIBUTARY_FLUSH_AGE_MS=200\nTRIBUTARY_QUOTA_USER=off\n`,
      );
      writeFileSync(path.join(root, 'usr/local/bin/systemctl'), serviceManager(opsPort), { mode: 0o755 });
      const readPid = (): number => Number(readFileSync(path.join(root, 'root/pid'), 'utf8'));
      onTestFinished(() => void signalProcess(readPid(), 'SIGKILL'));
      const answers = (await system.sh(others.join('\n'))).trim().split('\n');
      const [{ token = '' } = {}, analyst, , shown] = answers.map((line) => JSON.parse(line) as Answer);
      expect(shown).toMatchObject({ running: true, problems: [] });
      if (analyst === undefined) throw new Error('the block adds no user');
      await waitFor('an event is accepted', async () => {
        const { status } = await fetch(`http://127.0.0.1:${s2sPort}/v1/customEvent/?idApp=1`, {
          method: 'POST',
          headers: { authorization: token },
          body: '{"customUserId":"u-1","customEventName":"level_up"}',
        });
        return status === 200;
      });
      await waitFor('it is in the lake', async () =>
        (await system.sh('tributary lake stats')).includes('"kind":"custom_event"'),
      );
      const client = createExportClient({ api: `http://127.0.0.1:${apiPort}` }, analyst);
      const id = (await client.create(exportQuery('customUserId'))) ?? '';
      const rows = await client.download(await client.waitForEnd(id));
      expect(rows.slice(1)).toContain('u-1');

      signalProcess(readPid(), 'SIGTERM');
      const exitFile = path.join(root, 'root/exit');
      await waitFor('the service has stopped', () => existsSync(exitFile) && readFileSync(exitFile, 'utf8') !== '');
      expect(readFileSync(exitFile, 'utf8')).toBe('0\n');
      const find = "find / -xdev -iname '*tributary*' -not -path '/root/*' -not -path '/var/lib/tributary/*' | sort";
      const listFound = async (): Promise<string[]> => (await system.sh(find)).trim().split('\n');
      await system.sh('apt-get remove --yes tributary');
      const left = (await listFound()).filter((name) => !name.startsWith('/var/lib/dpkg/'));
      expect(left).toEqual(['/etc/tributary.env', '/var/lib/tributary']);
      await system.sh('apt-get purge --yes tributary');
      expect(await listFound()).toEqual(['/var/lib/tributary']);
      expect(await system.sh('ls -d /var/lib/tributary/data/lake')).toBe('/var/lib/tributary/data/lake\n');
    },
    slowMs,
  );
});

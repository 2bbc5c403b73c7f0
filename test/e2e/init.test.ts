import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { createServer, type AddressInfo } from 'node:net';
import { once } from 'node:events';
import path from 'node:path';
import { promisify } from 'node:util';
import { describe, expect, it, onTestFinished } from 'vitest';
import { packageRoot } from '../../src/runtime/files/package-files.ts';
import { cacheFolder } from '../../src/nats-setup/ensure-nats-server.ts';
import { testFolder } from '../helpers/folder.ts';

const run = promisify(execFile);

interface Outcome {
  readonly out: string;
  readonly err: string;
}

/** Runs a command in the checkout, with its own home and data folder. */
function runIn(
  home: string,
  settings: Readonly<Record<string, string>>,
  file: string,
  ...words: string[]
): Promise<Outcome> {
  const machine = Object.entries(process.env).filter(
    ([name]) => !/^(TRIBUTARY_(?!CACHE_DIR)|XDG_CONFIG|HOME$)/.test(name),
  );
  const own = {
    HOME: home,
    TRIBUTARY_CACHE_DIR: cacheFolder(process.env),
    TRIBUTARY_DATA_DIR: path.join(home, 'data'),
  };
  const env = { ...Object.fromEntries(machine), ...own, ...settings };
  return run(file, words, { cwd: packageRoot, env, timeout: 110_000 }).then(
    ({ stdout, stderr }) => ({ out: stdout, err: stderr }),
    ({ stdout, stderr }: { stdout: string; stderr: string }) => ({ out: stdout, err: stderr }),
  );
}

describe('the service of a checkout', { timeout: 120_000 }, () => {
  it('A service that cannot start ends make init with its error and its log, and make stop stops a running one', async (ctx) => {
    ctx.skip(process.env['TRIBUTARY_TEST_OPERATIONS'] !== 'all', 'in the nightly run (TRIBUTARY_TEST_OPERATIONS=all)');
    const home = testFolder();
    const taken = createServer().listen(0, '127.0.0.1');
    onTestFinished(() => void taken.close());
    await once(taken, 'listening');
    const { port } = taken.address() as AddressInfo;
    const ports = { TRIBUTARY_S2S_PORT: '0', TRIBUTARY_API_PORT: '0', TRIBUTARY_OPS_PORT: '0' };
    const log = path.join(home, 'data', 'service.log');
    const refused = await runIn(home, { ...ports, TRIBUTARY_API_PORT: String(port) }, 'make', 'init');
    expect(refused.err).toContain(
      `tributary: the service did not start: api port (TRIBUTARY_API_PORT): 127.0.0.1:${port} is in use.`,
    );
    expect(refused.err).toContain(`Check ${log}`);

    const started = await runIn(home, ports, 'make', 'init', 'SAMPLE=1');
    expect(started.err).toContain("'make stop' in a checkout");
    expect(started.err).toMatch(
      /\n {2}Console {2}http:\/\/127\.0\.0\.1:\d+\/console\/\n {2}User {5}1\n {2}Secret {3}\S+\n/,
    );
    expect(JSON.parse(started.out.split('\n').find((line) => line.startsWith('{')) ?? '')).toMatchObject({
      isRunning: true,
      sample: { idApp: '2' },
    });
    const stopped = await runIn(home, {}, 'make', 'stop');
    expect(stopped.out).toMatch(/\{"stopped":\d+,/);
    expect(readFileSync(log, 'utf8')).toContain('service stopped');
    expect((await runIn(home, {}, 'make', 'stop')).err).toContain('No service runs on');
  });
});

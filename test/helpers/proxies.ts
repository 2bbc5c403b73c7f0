import { spawn, spawnSync, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, openSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { onTestFinished } from 'vitest';
import { packageRoot } from '../../src/runtime/files/package-files.ts';
import { testFolder } from './folder.ts';
import { findFreePorts, isListening } from './free-ports.ts';
import { waitFor } from './wait.ts';

/** A balancer in front of hosts, with the documented configuration. */
export interface Proxy {
  readonly name: string;
  /** Addresses of the import and the export area. */
  readonly s2s: string;
  readonly api: string;
}

/** Ports of the hosts' areas. */
interface Backends {
  readonly s2s: readonly number[];
  readonly api: readonly number[];
}

/** Values of the test for those of a documented file; each is there. */
function replaceAll(text: string, values: readonly (readonly [string, string])[]): string {
  return values.reduce((before, [documented, value]) => {
    if (!before.includes(documented)) throw new Error(`the file has no ${documented}`);
    return before.replaceAll(documented, value);
  }, text);
}

const documentedFile = (name: string): string => readFileSync(path.join(packageRoot, 'docs/deploy', name), 'utf8');
const isRoot = process.getuid?.() === 0;

/** Repeats the server line of a documented port for each host. */
function listServers(text: string, port: number, hosts: readonly number[]): string {
  const line = new RegExp(`^( *server (?:host-1 )?)127\\.0\\.0\\.1:${port}(.*)$`, 'm');
  const [, before = '', after] = line.exec(text) ?? [];
  if (after === undefined) throw new Error(`the file has no server with port ${port}`);
  const servers = hosts.map((host, index) => `${before.replace('-1', `-${index + 1}`)}127.0.0.1:${host}${after}`);
  return text.replace(line, servers.join('\n'));
}

/** The documented file of nginx without TLS, in a file of the test. */
function writeNginx(folder: string, [s2s, api]: readonly number[], hosts: Backends): readonly string[] {
  const sites = replaceAll(documentedFile('nginx.conf'), [['/var/log/nginx/', `${folder}/`]])
    .replaceAll(/^ *ssl_.*$/gm, '')
    .replace('listen 443 ssl', `listen 127.0.0.1:${s2s}`)
    .replace('listen 443 ssl', `listen 127.0.0.1:${api}`);
  const temporary = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi']
    .map((kind) => `${kind}_temp_path ${folder}/${kind};`)
    .join(' ');
  writeFileSync(
    path.join(folder, 'nginx.conf'),
    `${isRoot ? 'user root;' : ''} worker_processes 2; daemon off; pid ${folder}/nginx.pid; error_log ${folder}/nginx.log;
events {}
http { ${temporary}
${listServers(listServers(sites, 8080, hosts.s2s), 8081, hosts.api)} }
`,
  );
  return ['-c', `${folder}/nginx.conf`, '-e', `${folder}/nginx.log`];
}

/** The documented file of HAProxy without TLS, in a file of the test. */
function writeHaproxy(folder: string, [s2s, api]: readonly number[], hosts: Backends): readonly string[] {
  const text = replaceAll(documentedFile('haproxy.cfg'), [
    ['bind :443 ssl crt /etc/haproxy/tributary.pem', `bind 127.0.0.1:${s2s}\n    bind 127.0.0.1:${api}`],
    ['api.example.com', `127.0.0.1:${api}`],
    ['    user haproxy\n    group haproxy\n', ''],
    ['log /dev/log local0', 'log stdout format raw local0'],
  ]);
  writeFileSync(path.join(folder, 'haproxy.cfg'), listServers(listServers(text, 8080, hosts.s2s), 8081, hosts.api));
  return ['-db', '-f', `${folder}/haproxy.cfg`];
}

const kinds = [
  { name: 'nginx', write: writeNginx },
  { name: 'haproxy', write: writeHaproxy },
] as const;

async function endProcess(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  child.kill('SIGTERM');
  await once(child, 'exit');
}

/**
 * Starts nginx and HAProxy in front of the hosts, until the test ends, those that are installed; notices name the others.
 */
export async function startProxies(hosts: Backends): Promise<readonly Proxy[]> {
  const proxies: Proxy[] = [];
  for (const { name, write } of kinds) {
    const found = spawnSync('sh', ['-c', `PATH="$PATH:/usr/sbin:/sbin" command -v ${name}`], { encoding: 'utf8' });
    if (found.status !== 0) {
      process.stderr.write(`skipped: ${name} is not installed\n`);
      continue;
    }
    const [folder, ports] = [testFolder(), await findFreePorts(2)];
    const log = openSync(path.join(folder, 'output.log'), 'a');
    const child = spawn(found.stdout.trim(), write(folder, ports, hosts), { stdio: ['ignore', log, log] });
    closeSync(log);
    onTestFinished(() => endProcess(child));
    const [s2s = 0, api = 0] = ports;
    await waitFor(`${name} listens`, async () => {
      if (child.exitCode !== null) throw new Error(readFileSync(path.join(folder, 'output.log'), 'utf8'));
      return (await isListening(s2s)) && (await isListening(api));
    });
    proxies.push({ name, s2s: `http://127.0.0.1:${s2s}`, api: `http://127.0.0.1:${api}` });
  }
  return proxies;
}

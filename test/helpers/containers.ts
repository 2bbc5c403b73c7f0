import { spawn, spawnSync } from 'node:child_process';
import { closeSync, existsSync, fchownSync, mkdirSync, openSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { onTestFinished } from 'vitest';
import { watchContainer, type RunningContainer } from './deployment.ts';
import { testFolder } from './folder.ts';
import { listTree } from './processes.ts';
import { waitFor } from './wait.ts';

/** Containers without an engine: processes in new namespaces, on the root of an image. They need root and iproute2. */

/** The root file system of an image, and what a container of it runs by default. */
export interface ContainerImage {
  readonly root: string;
  /** `user:group`, as numbers. */
  readonly user: string;
  readonly environment: Readonly<Record<string, string>>;
  readonly entrypoint: readonly string[];
  readonly command: readonly string[];
  readonly healthcheck: readonly string[];
  readonly volumes: readonly string[];
  readonly workingFolder: string;
}

export interface Mount {
  readonly source: string;
  readonly target: string;
  readonly isReadOnly?: boolean;
}

export interface ContainerOptions {
  /** The process: entry point and command. */
  readonly words: readonly string[];
  readonly environment?: Readonly<Record<string, string>>;
  readonly user?: string;
  readonly mounts?: readonly Mount[];
  readonly hostname?: string;
  /** Keeps the capabilities of its user, which others lose. */
  readonly isPrivileged?: boolean;
  /** A name in a network, or the container whose network it shares; that of the machine by default. */
  readonly network?: { readonly network: ContainerNetwork; readonly name: string } | Container | undefined;
  /** The container whose processes it sees; only its own by default. */
  readonly processesOf?: Container | undefined;
}

export interface Container extends RunningContainer {
  /** Id of its first process on the machine. */
  pid(): number;
  /** Runs a command in it, as its user; the status is null without a process. */
  execute(words: readonly string[]): { readonly status: number | null; readonly output: string };
}

/** A network in which containers find each other by name. */
export interface ContainerNetwork {
  /** Id of the process that keeps it. */
  readonly pid: number;
  /** File with the names and addresses, for /etc/hosts. */
  readonly hosts: string;
  readonly addressOf: (name: string) => string;
  /** Requests an address of a container, as another machine; returns the status, 0 without a response. */
  request(url: string): number;
}

const searchPath = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin';
const quote = (word: string): string => `'${word.replaceAll("'", String.raw`'\''`)}'`;
const bridge = '10.77.0.1';

/** Starts a network with these names, until the test ends. */
export async function startNetwork(names: readonly string[]): Promise<ContainerNetwork> {
  const addresses = new Map(names.map((name, index) => [name, `10.77.0.${index + 2}`]));
  const hosts = path.join(testFolder(), 'hosts');
  writeFileSync(hosts, ['127.0.0.1 localhost', ...[...addresses].map(([name, at]) => `${at} ${name}`), ''].join('\n'));
  const script = `set -e
ip link set lo up
ip link add bridge type bridge
ip addr add ${bridge}/24 dev bridge
ip link set bridge up
echo ready
exec sleep infinity`;
  const child = spawn('unshare', ['--net', 'sh', '-c', script], { stdio: ['ignore', 'pipe', 'inherit'] });
  onTestFinished(() => void child.kill('SIGKILL'));
  let isReady = false;
  child.stdout.on('data', () => (isReady = true));
  await waitFor('the network is ready', () => isReady);
  const { pid = 0 } = child;
  return {
    pid,
    hosts,
    addressOf(name) {
      const address = addresses.get(name);
      if (address === undefined) throw new Error(`${name} is not a name of the network`);
      return address;
    },
    request(url) {
      const words = [`--net=/proc/${pid}/ns/net`, 'curl', '--silent', '--max-time', '5', '--output', '/dev/null'];
      return Number(spawnSync('nsenter', [...words, '--write-out', '%{http_code}', url], { encoding: 'utf8' }).stdout);
    },
  };
}

/** Creates what a mount needs in the root, as an engine does. */
function prepareTarget(root: string, { source, target }: Mount): void {
  const place = path.join(root, target);
  if (existsSync(place)) return;
  mkdirSync(statSync(source).isDirectory() ? place : path.dirname(place), { recursive: true });
  if (!existsSync(place)) writeFileSync(place, '');
}

/** Returns the words that replace a program by one of another user, without capabilities unless privileged. */
function asUser(user: string, isPrivileged: boolean): readonly string[] {
  const [uid = '', gid = ''] = user.split(':');
  const ids = [`--reuid=${uid}`, `--regid=${gid}`, '--clear-groups'];
  return ['setpriv', ...ids, ...(isPrivileged ? [] : ['--inh-caps=-all', '--bounding-set=-all', '--no-new-privs'])];
}

/** Returns the script that mounts what an engine would, and starts the process. The root is read-only. */
function startScript(image: ContainerImage, options: ContainerOptions, mounts: readonly Mount[]): string {
  const { words, user = image.user, hostname, isPrivileged = false } = options;
  const root = quote(image.root);
  const lines = mounts.flatMap(({ source, target, isReadOnly }) => [
    `mount --bind ${quote(source)} ${root}${quote(target)}`,
    ...(isReadOnly === true ? [`mount -o remount,ro,bind ${root}${quote(target)}`] : []),
  ]);
  const start = ['env', `--chdir=${image.workingFolder}`, ...asUser(user, isPrivileged), '--', ...words];
  return `set -e
mount --make-rprivate /
${hostname === undefined ? '' : `echo ${quote(hostname)} > /proc/sys/kernel/hostname`}
mount --bind ${root} ${root}
mount -o remount,ro,bind ${root}
mount -t proc proc ${root}/proc
mount -t tmpfs tmpfs ${root}/tmp
mount --rbind /dev ${root}/dev
${lines.join('\n')}
exec chroot ${root} ${start.map(quote).join(' ')}`;
}

let lastInterface = 0;

/** Returns the command that runs a script in the namespaces of a container. */
function inNamespaces(script: string, { network, processesOf }: ContainerOptions): readonly string[] {
  const own = ['--mount', '--uts', ...(processesOf === undefined ? ['--pid', '--fork', '--kill-child'] : [])];
  const run = ['unshare', ...own, 'sh', '-c', script];
  const joined = [
    ...(processesOf === undefined ? [] : [`--pid=/proc/${processesOf.pid()}/ns/pid`]),
    ...(network !== undefined && 'pid' in network ? [`--net=/proc/${network.pid()}/ns/net`] : []),
  ];
  if (joined.length > 0) return ['nsenter', ...joined, ...run];
  if (network === undefined || !('network' in network)) return run;
  const { pid, addressOf } = network.network;
  lastInterface += 1;
  const name = `c${lastInterface}`;
  const connect = `set -e
ip link set lo up
ip link add eth0 type veth peer name ${name} netns ${pid}
ip addr add ${addressOf(network.name)}/24 dev eth0
ip link set eth0 up
nsenter --net=/proc/${pid}/ns/net ip link set ${name} master bridge up
exec "$@"`;
  return ['unshare', '--net', 'sh', '-c', connect, 'sh', ...run];
}

/** Starts a container, with a read-only root and a tmpfs at /tmp, until the test ends. */
export function runContainer(image: ContainerImage, options: ContainerOptions): Container {
  const { environment = {}, user = image.user, network, mounts = [] } = options;
  const named = network !== undefined && 'network' in network ? network.network.hosts : undefined;
  const hosts = named === undefined ? [] : [{ source: named, target: '/etc/hosts', isReadOnly: true }];
  const all = [...mounts, ...hosts];
  for (const mount of all) prepareTarget(image.root, mount);
  const env = { PATH: searchPath, ...image.environment, ...environment };
  const log = path.join(testFolder(), 'log');
  const file = openSync(log, 'a');
  // The process may open /dev/stdout.
  const [uid, gid] = user.split(':').map(Number);
  fchownSync(file, uid ?? 0, gid ?? 0);
  const [program = '', ...words] = inNamespaces(startScript(image, options, all), options);
  const child = spawn(program, words, { env, stdio: ['ignore', file, file] });
  closeSync(file);
  const findFirst = (): number | undefined => listTree(child.pid ?? 0).find((pid) => pid !== child.pid);
  const pid = (): number => {
    const first = findFirst();
    if (first === undefined) throw new Error(`the container has ended: ${readFileSync(log, 'utf8')}`);
    return first;
  };
  return {
    ...watchContainer(child, findFirst, () => readFileSync(log, 'utf8')),
    pid,
    execute(command) {
      const first = findFirst();
      if (first === undefined) return { status: null, output: '' };
      const inside = ['--target', String(first), '--mount', '--uts', '--net', '--pid', '--root'];
      const under = asUser(user, options.isPrivileged ?? false);
      const { status, stdout, stderr } = spawnSync('nsenter', [...inside, ...under, '--', ...command], {
        env,
        encoding: 'utf8',
      });
      return { status, output: stdout + stderr };
    },
  };
}

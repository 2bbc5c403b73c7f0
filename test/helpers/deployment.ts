import { execFile, spawn, spawnSync, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { promisify } from 'node:util';
import { onTestFinished } from 'vitest';
import { packageRoot } from '../../src/runtime/files/package-files.ts';
import { temporaryFolder } from './folder.ts';
import { listTree, signalProcess } from './processes.ts';
import { waitFor, within } from './wait.ts';

/** Files that deploy the program: the Dockerfile, and those below deploy/. */

const run = promisify(execFile);

export const dockerfile = path.join(packageRoot, 'Dockerfile');

/** Lists the paths of the files below deploy/ with an ending, sorted. */
export function listDeployFiles(ending: string): readonly string[] {
  const folder = path.join(packageRoot, 'deploy');
  return readdirSync(folder, { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith(ending) && !name.includes('secrets/'))
    .map((name) => path.join(folder, name))
    .toSorted();
}

/** Parses YAML files: the documents of each. */
export async function parseYaml(python: string, files: readonly string[]): Promise<readonly (readonly unknown[])[]> {
  const script = 'import json, sys, yaml; print(json.dumps([list(yaml.safe_load_all(open(f))) for f in sys.argv[1:]]))';
  const { stdout } = await run(python, ['-c', script, ...files], { maxBuffer: 16 * 1024 * 1024 });
  return JSON.parse(stdout) as unknown[][];
}

/** Parses the YAML files below deploy/: the documents of each, by its path there. */
export async function readDeployYaml(python: string): Promise<ReadonlyMap<string, readonly unknown[]>> {
  const files = listDeployFiles('.yaml');
  const documents = await parseYaml(python, files);
  const folder = path.join(packageRoot, 'deploy');
  return new Map(files.map((file, index) => [path.relative(folder, file), documents[index] ?? []]));
}

const composeGo = 'github.com/compose-spec/compose-go/v2@v2.16.2';

/** Returns the JSON Schema of compose files, from its Go module; undefined, with a notice, if it cannot be fetched. */
export async function findComposeSchema(): Promise<Record<string, unknown> | undefined> {
  try {
    // The module's checksum is compared with that of the checksum database.
    const { stdout } = await run('go', ['mod', 'download', '-json', composeGo], { cwd: temporaryFolder() });
    const { Dir } = JSON.parse(stdout) as { readonly Dir: string };
    return JSON.parse(readFileSync(path.join(Dir, 'schema/compose-spec.json'), 'utf8')) as Record<string, unknown>;
  } catch (error) {
    process.stderr.write(`skipped: ${composeGo} cannot be had here (${String(error).split('\n')[0]})\n`);
    return undefined;
  }
}

/** What a container of the image runs by default. */
export interface Image {
  readonly environment: Readonly<Record<string, string>>;
  readonly entrypoint: readonly string[];
  readonly command: readonly string[];
  readonly healthcheck: readonly string[];
  readonly user: string;
}

/** Reads the last stage of the Dockerfile. */
export function readDockerfile(): Image {
  const text = readFileSync(dockerfile, 'utf8').replaceAll('\\\n', ' ');
  const stage = text.slice(text.lastIndexOf('\nFROM ') + 1);
  const words = (name: string): readonly string[] =>
    JSON.parse(new RegExp(`^${name} +(?:--\\S+ +)*(?:CMD +)?(\\[.*\\])$`, 'm').exec(stage)?.[1] ?? 'null') as string[];
  const [, list = ''] = /^ENV (.*)$/m.exec(stage) ?? [];
  return {
    environment: Object.fromEntries(
      [...list.matchAll(/(\S+)=(\S+)/g)].map(([, name = '', value = '']) => [name, value]),
    ),
    entrypoint: words('ENTRYPOINT'),
    command: words('CMD'),
    healthcheck: words('HEALTHCHECK'),
    user: /^USER (\S+)$/m.exec(stage)?.[1] ?? '',
  };
}

/** A container, or the processes that it would have. */
export interface RunningContainer {
  /** Its standard output and error so far. */
  output(): string;
  /** Waits for its end; returns the exit code. */
  end(): Promise<number | null>;
  /** Sends SIGTERM to its first process, and returns how long it took to end, ms. */
  stop(): Promise<number>;
}

/** Watches a started program until the test ends, when it is killed with all that it started. */
export function watchContainer(
  child: ChildProcess,
  findFirst: () => number | undefined,
  output: () => string,
): RunningContainer {
  const exited = once(child, 'close') as Promise<[number | null]>;
  onTestFinished(() => {
    for (const pid of listTree(child.pid ?? 0)) signalProcess(pid, 'SIGKILL');
  });
  return {
    output,
    end: async () => (await exited)[0],
    async stop() {
      const beganMs = performance.now();
      const first = findFirst();
      if (first === undefined) throw new Error(`nothing to stop: ${output()}`);
      signalProcess(first, 'SIGTERM');
      await within('the container ends', exited, 180_000);
      return performance.now() - beganMs;
    },
  };
}

/** Returns the words of a container's process on this machine, where the program is in dist and tini is left out. */
export function toLocalCommand(words: readonly string[]): readonly string[] {
  const program = [process.execPath, path.join(packageRoot, 'dist/main.js')];
  return words
    .filter((word) => word !== 'tini' && word !== '--')
    .flatMap((word) => (word === 'tributary' ? program : word === 'node' ? [process.execPath] : [word]));
}

/** Replaces the volume of the image by a folder in the values of an environment. */
export function mapVolume(
  environment: Readonly<Record<string, string>>,
  folder: string,
): Readonly<Record<string, string>> {
  return Object.fromEntries(
    Object.entries(environment).map(([name, value]) => [name, value.replace('/var/lib/tributary', folder)]),
  );
}

/** Runs the process of a container as one of this machine. */
export function startLocally(words: readonly string[], env: Readonly<Record<string, string>>): RunningContainer {
  const [program = '', ...rest] = toLocalCommand(words);
  const child = spawn(program, rest, { env: { PATH: process.env['PATH'] ?? '', ...env } });
  let output = '';
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (piece: Buffer) => (output += String(piece)));
  return watchContainer(
    child,
    () => child.pid,
    () => output,
  );
}

/** Runs a probe by command, as HEALTHCHECK does; returns whether it passed. */
export function passesCheck(words: readonly string[], env: Readonly<Record<string, string>>): boolean {
  const [program = '', ...rest] = toLocalCommand(words);
  return spawnSync(program, rest, { env: { PATH: process.env['PATH'] ?? '', ...env } }).status === 0;
}

/** Maximum time until a container is healthy on a loaded machine, ms. */
const healthyMs = 240_000;

/** Waits until a container passes its check; throws its output if it ends before. */
export async function waitUntilHealthy(container: RunningContainer, check: () => boolean | Promise<boolean>) {
  let isOver = false;
  void container.end().then(() => (isOver = true));
  await waitFor(
    'the container is healthy',
    async () => {
      if (isOver) throw new Error(container.output());
      return await check();
    },
    healthyMs,
  );
}

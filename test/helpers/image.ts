import { execFile, execFileSync } from 'node:child_process';
import { chownSync, copyFileSync, existsSync, mkdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { promisify } from 'node:util';
import { packageRoot } from '../../src/runtime/files/package-files.ts';
import { runContainer, type Container, type ContainerImage } from './containers.ts';
import { readDockerfile } from './deployment.ts';
import { findProgram } from './shell.ts';

const run = promisify(execFile);

/** Maximum duration of a step of the build, ms. */
const buildMs = 1_200_000;
const base = 'localhost/tributary-test-base';
const tag = 'localhost/tributary-test';
const others = 'localhost/tributary-test-others';
/** The release, the Node and the npm of the base that the Dockerfile names by default. */
const release = 'trixie';
const node = `node-linux-${process.arch}@24`;
const npm = 'npm@11';
const certificates = '/etc/ssl/certs/ca-certificates.crt';

/** Programs that a machine needs to build and run the image without a container engine, as root. */
const programs = ['buildah', 'mmdebstrap', 'unshare', 'nsenter', 'ip', 'chroot', 'curl', 'npm'];

/** Returns the reason why the image cannot be built here; undefined if it can be. */
export function findObstacle(): string | undefined {
  const missing = programs.filter((name) => findProgram(name) === undefined);
  if (missing.length > 0)
    return `${missing.join(', ')} missing on this machine (apt-get install buildah mmdebstrap iproute2 curl)`;
  return process.getuid?.() === 0 ? undefined : 'the image is built as root';
}

const buildah = async (...words: readonly string[]): Promise<string> =>
  (await run('buildah', words, { cwd: packageRoot, timeout: buildMs, maxBuffer: 64 * 1024 * 1024 })).stdout.trim();

const hasImage = async (name: string): Promise<boolean> =>
  (await buildah('images', '--quiet', '--filter', `reference=${name}`)) !== '';

/** Makes a base like the default one from packages: Debian, and the packages of Node and npm. Kept for later runs. */
async function ensureBase(folder: string): Promise<void> {
  if (await hasImage(base)) return;
  const root = path.join(folder, 'base');
  const modules = path.join(root, 'usr/local/lib/node_modules');
  await run('mmdebstrap', ['--variant=minbase', '--include=ca-certificates,libstdc++6', release, root], {
    timeout: buildMs,
  });
  mkdirSync(modules, { recursive: true });
  for (const [name, target] of [
    [node, path.join(folder, 'node')],
    [npm, path.join(modules, 'npm')],
  ] as const) {
    mkdirSync(target, { recursive: true });
    const { stdout } = await run('npm', ['pack', '--silent', name], { cwd: folder, timeout: buildMs });
    const file = path.join(folder, stdout.trim().split('\n').at(-1) ?? '');
    await run('tar', ['-xf', file, '-C', target, '--strip-components=1']);
  }
  copyFileSync(path.join(folder, 'node/bin/node'), path.join(root, 'usr/local/bin/node'));
  await run('ln', ['-s', '../lib/node_modules/npm/bin/npm-cli.js', path.join(root, 'usr/local/bin/npm')]);
  // Those that this machine trusts, such as its proxy's.
  copyFileSync(certificates, path.join(root, certificates));
  const container = await buildah('from', 'scratch');
  await buildah('add', '--quiet', container, root, '/');
  await buildah('config', '--env', `NODE_EXTRA_CA_CERTS=${certificates}`, container);
  await buildah('commit', '--quiet', '--rm', container, base);
}

type ImageConfig = Readonly<Record<string, unknown>> & {
  readonly Volumes: Readonly<Record<string, object>>;
  readonly WorkingDir: string;
};

export interface BuiltImage extends ContainerImage {
  /** Bytes of the files that the image adds to its base. */
  readonly addedBytes: number;
  /** Labels and default process, as a container engine reads them. */
  readonly config: ImageConfig;
  /** Runs a process in it with a volume and the network of the machine. */
  run(volume: string, words: readonly string[], environment?: Readonly<Record<string, string>>): Container;
  remove(): Promise<void>;
}

/** Builds the image from the Dockerfile without a container engine. `folder`: for the base. */
export async function buildImage(folder: string): Promise<BuiltImage> {
  await ensureBase(folder);
  const build = ['bud', '--quiet', '--isolation', 'chroot', '--format', 'docker', '--build-arg', `BASE=${base}`];
  await buildah(...build, '--build-arg', 'COMMIT=abc', '--tag', tag, '.');
  const { Docker } = JSON.parse(await buildah('inspect', '--type', 'image', tag)) as {
    readonly Docker: { readonly config: ImageConfig };
  };
  const container = await buildah('from', tag);
  const root = await buildah('mount', container);
  const added = ['opt/tributary', ...['nats-server', 'tini', 'tributary'].map((name) => `usr/local/bin/${name}`)];
  const { stdout: sizes } = await run('du', ['--bytes', '--summarize', '--total', ...added], { cwd: root });
  const { config } = Docker;
  const image = { ...readDockerfile(), root, volumes: Object.keys(config.Volumes), workingFolder: config.WorkingDir };
  return {
    ...image,
    addedBytes: Number(sizes.trim().split('\n').at(-1)?.split('\t')[0]),
    config,
    run: (volume, words, environment = {}) =>
      runContainer(image, { words, environment, mounts: [{ source: volume, target: '/var/lib/tributary' }] }),
    remove: async () => void (await buildah('rm', container), await buildah('rmi', tag)),
  };
}

export interface OtherImages {
  readonly nginx: ContainerImage;
  readonly versitygw: ContainerImage;
  remove(): Promise<void>;
}

/**
 * Makes images in place of those of nginx and versitygw, which come from another registry: Debian's nginx, and a
 * versitygw of this machine. buildImage must have made the base. Kept for later runs.
 */
export async function buildOthers(gateway: string): Promise<OtherImages> {
  if (!(await hasImage(others))) {
    const container = await buildah('from', base);
    const install = 'apt-get update && apt-get install --yes --no-install-recommends nginx-light';
    await buildah('run', '--isolation', 'chroot', container, '--', 'sh', '-c', install);
    await buildah('copy', '--quiet', container, gateway, '/usr/local/bin/versitygw');
    await buildah('commit', '--quiet', '--rm', container, others);
  }
  const container = await buildah('from', others);
  const image = {
    root: await buildah('mount', container),
    user: '101:101',
    environment: {},
    entrypoint: [],
    healthcheck: [],
    volumes: [],
    workingFolder: '/',
  };
  return {
    nginx: { ...image, command: ['nginx', '-g', 'daemon off;'] },
    versitygw: { ...image, command: [] },
    remove: async () => void (await buildah('rm', container)),
  };
}

/** Creates a folder for a volume with an owner. */
export function makeVolume(folder: string, owner: number): string {
  if (!existsSync(folder)) mkdirSync(folder, { recursive: true, mode: 0o700 });
  chownSync(folder, owner, owner);
  return folder;
}

export function readBillOfMaterials(root: string) {
  return JSON.parse(readFileSync(path.join(root, 'opt/tributary/sbom.cdx.json'), 'utf8')) as {
    readonly bomFormat: string;
    readonly metadata: { readonly component: { readonly name: string; readonly version: string } };
    readonly components: readonly { readonly name: string; readonly version: string }[];
  };
}

/** Returns the version of the nats-server in the image. */
export function findNatsVersion(root: string): string {
  return execFileSync('chroot', [root, 'nats-server', '--version'], { encoding: 'utf8' });
}

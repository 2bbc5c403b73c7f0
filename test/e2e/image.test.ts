import { execFileSync } from 'node:child_process';
import { cpSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startCompose, type Compose } from '../helpers/compose.ts';
import {
  runContainer,
  startNetwork,
  type Container,
  type ContainerNetwork,
  type ContainerOptions,
} from '../helpers/containers.ts';
import { readDeployYaml, readDockerfile, waitUntilHealthy } from '../helpers/deployment.ts';
import { temporaryFolder, testFolder } from '../helpers/folder.ts';
import { findFreePorts } from '../helpers/free-ports.ts';
import {
  buildImage,
  buildOthers,
  findNatsVersion,
  findObstacle,
  makeVolume,
  readBillOfMaterials,
  type BuiltImage,
  type OtherImages,
} from '../helpers/image.ts';
import { isWhole } from '../helpers/in-turn.ts';
import {
  awsCredentials,
  copyManifests,
  kubectl,
  listNatsServers,
  listPods,
  renderBlock,
  startNats,
  startPods,
  type NatsValues,
} from '../helpers/kubernetes.ts';
import { readLockFile } from '../helpers/lock-file.ts';
import { findPythonDeployment } from '../helpers/python-engines.ts';
import { findGateway } from '../helpers/s3-servers.ts';
import { waitFor } from '../helpers/wait.ts';
import { packageRoot } from '../../src/runtime/files/package-files.ts';

/**
 * The image, built from the Dockerfile on Debian's packages, and containers of it as a strict engine runs them: alone,
 * as the services of the compose files, and as the pods of the manifests.
 */

const obstacle = isWhole ? findObstacle() : 'in the nightly run (TRIBUTARY_TEST_WHOLE=1)';
if (obstacle !== undefined) process.stderr.write(`skipped: the image is not built: ${obstacle}\n`);
const folder = temporaryFolder();
const { entrypoint, command, healthcheck } = readDockerfile();
const user = 10_001;
let image: BuiltImage;

beforeAll(async () => {
  if (obstacle === undefined) image = await buildImage(folder);
}, 2_400_000);

afterAll(async () => {
  if (obstacle === undefined) await image.remove();
  rmSync(path.join(folder, 'base'), { recursive: true, force: true });
}, 120_000);

describe.skipIf(obstacle !== undefined)('the image', { timeout: 300_000 }, () => {
  it('The image adds to its base what the page says, has labels, and runs as another user than root', () => {
    const page = readFileSync(path.join(packageRoot, 'docs/containers.md'), 'utf8');
    const [, statedMb] = /tini; (\d+) MB on top of the base/.exec(page) ?? [];
    expect(Math.abs(image.addedBytes / 1e6 - Number(statedMb)), String(image.addedBytes)).toBeLessThan(5);
    expect(image.config).toMatchObject({
      User: '10001:10001',
      Entrypoint: entrypoint,
      Cmd: command,
      Healthcheck: { Test: ['CMD', ...healthcheck] },
      Volumes: { '/var/lib/tributary': {} },
      Labels: {
        'org.opencontainers.image.title': 'tributary',
        'org.opencontainers.image.licenses': 'Apache-2.0',
        'org.opencontainers.image.revision': 'abc',
      },
    });
  });

  it('The bill of materials of the image has the packages of the lock file in its program, and the nats-server', () => {
    const { bomFormat, metadata, components } = readBillOfMaterials(image.root);
    expect(bomFormat).toBe('CycloneDX');
    expect(metadata.component.name).toBe('tributary');
    const listed = new Set(components.map(({ name, version }) => `${name}@${version}`));
    const shipped = [...readLockFile(packageRoot)].filter(([, { dev, optional }]) => dev !== true && optional !== true);
    const names = shipped.map(([place, { version }]) => `${place.split('node_modules/').at(-1)}@${version}`);
    expect(names.length).toBeGreaterThan(100);
    expect(names.filter((name) => !listed.has(name))).toEqual([]);
    expect([...listed].filter((name) => /^(?:vitest|oxlint|typescript)@/.test(name))).toEqual([]);
    const [, version = ''] = /v(\d+\.\d+\.\d+)/.exec(findNatsVersion(image.root)) ?? [];
    expect(listed).toContain(`nats-server@${version}`);
  });

  it('A container with a read-only root runs the demo', async () => {
    const volume = makeVolume(path.join(folder, 'demo'), user);
    const demo = image.run(volume, [...entrypoint, 'demo', '--count', '2000']);
    expect(await demo.end(), demo.output()).toBe(0);
    expect(demo.output()).toMatch(/stopped {3}everything/);
    const write = image.run(volume, ['sh', '-c', 'id --user; touch /written']);
    expect(await write.end()).not.toBe(0);
    expect(write.output()).toMatch(/^10001\n.*Read-only file system/);
  });

  it('A container becomes healthy by its own check, and ends by SIGTERM after the drain and within the grace', async () => {
    const [s2s, api, ops] = await findFreePorts(3);
    const env = {
      TRIBUTARY_S2S_PORT: String(s2s),
      TRIBUTARY_API_PORT: String(api),
      TRIBUTARY_OPS_PORT: String(ops),
    };
    const volume = makeVolume(path.join(folder, 'service'), user);
    const service = image.run(volume, [...entrypoint, ...command], env);
    await waitUntilHealthy(service, () => service.execute(healthcheck).status === 0);
    const durationMs = await service.stop();
    expect(durationMs).toBeGreaterThan(5000);
    expect(durationMs).toBeLessThan(30_000);
    expect(await service.end()).toBe(0);
    expect(await image.run(volume, healthcheck, env).end()).toBe(1);
  });

  it('A container on the volume of another user ends with one sentence that names both users', async () => {
    const volume = makeVolume(path.join(folder, 'foreign'), 0);
    const service = image.run(volume, [...entrypoint, ...command]);
    expect(await service.end()).toBe(1);
    expect(service.output()).toMatch(
      /^tributary: cannot .*: \/var\/lib\/tributary belongs to user 0, and this process runs as user 10001 \(.*\)\. Make 10001:10001 the owner of the folder or volume, or pass another folder with --data\.\n$/,
    );
  });
});

const python = obstacle === undefined ? await findPythonDeployment() : undefined;
const gateway = obstacle === undefined ? await findGateway() : undefined;
let others: OtherImages;
if (obstacle === undefined && kubectl === undefined)
  process.stderr.write('skipped: kubectl is missing, which renders the manifests\n');
const yaml = python === undefined ? new Map<string, readonly unknown[]>() : await readDeployYaml(python);

/** What `init` prints: environment of a client. */
function readSignIn(output: string): Readonly<Record<string, string>> {
  const [, importUrl = '', idApp = '', token = ''] =
    /curl -X POST '(\S+)\/v1\/customEvent\/\?idApp=(\d+)' -H 'Authorization: (\S+)'/.exec(output) ?? [];
  const [, exportUrl = '', idUser = '', secret = ''] =
    /Console +(\S+)\/console\/\s+User +(\d+)\s+Secret +(\S+)/.exec(output) ?? [];
  return {
    TRIBUTARY_IMPORT_URL: importUrl,
    TRIBUTARY_EXPORT_URL: exportUrl,
    TRIBUTARY_APP: idApp,
    TRIBUTARY_TOKEN: token,
    TRIBUTARY_USER: idUser,
    TRIBUTARY_SECRET: secret,
  };
}

/** Imports events of so many users with the client of the image; returns the exported users, sorted. */
async function exchange(
  signIn: Readonly<Record<string, string>>,
  network: ContainerOptions['network'],
  users: readonly string[],
): Promise<readonly string[]> {
  const files = makeVolume(path.join(testFolder(), 'files'), user);
  const lines = users.map((customUserId) => JSON.stringify({ customUserId, customEventName: 'level' }));
  writeFileSync(path.join(files, 'events.ndjson'), `${lines.join('\n')}\n`);
  for (const words of [
    ['import', 'events.ndjson', '--wait'],
    ['export', 'customEvents', '--from', 'yesterday', '--selectors', 'customUserId', '-o', 'users.csv'],
  ]) {
    const mounts = [{ source: files, target: '/var/lib/tributary' }];
    const client = runContainer(image, { words: [...entrypoint, ...words], environment: signIn, mounts, network });
    expect(await client.end(), client.output()).toBe(0);
  }
  const [header, ...rows] = readFileSync(path.join(files, 'users.csv'), 'utf8').trimEnd().split('\n');
  expect(header).toBe('customUserId');
  return rows.toSorted();
}

const usersFrom = (first: number, count = 100): readonly string[] =>
  Array.from({ length: count }, (_, index) => `u-${first + index}`).toSorted();

/** Returns the number of acknowledged events of a host of role ingest. */
function countAcknowledged(container: Container): number {
  const script = "fetch('http://127.0.0.1:8082/metrics').then((r) => r.text()).then((text) => console.log(text))";
  const { output } = container.execute(['node', '-e', script]);
  return Number(/^tributary_ingest_events_acknowledged_total\{kind="custom_event"\} (\d+)$/m.exec(output)?.[1] ?? 0);
}

/** Starts the S3 server of the manifests' bucket, for the credentials that copyManifests writes. */
function startBucket(place: string, network: ContainerNetwork): void {
  const { accessKeyId: id, secretAccessKey: key } = awsCredentials;
  const objects = makeVolume(path.join(place, 'objects'), user);
  makeVolume(path.join(objects, 'my-bucket'), user);
  runContainer(others.versitygw, {
    words: ['versitygw', '--port', ':7070', '--keep-alive', '--quiet', 'posix', '/objects'],
    environment: { ROOT_ACCESS_KEY: id, ROOT_SECRET_KEY: key },
    mounts: [{ source: objects, target: '/objects' }],
    user: image.user,
    network: { network, name: 's3' },
  });
}

describe.skipIf(python === undefined || gateway === undefined)('containers', { timeout: 600_000 }, () => {
  beforeAll(async () => {
    others = await buildOthers(gateway ?? '');
  }, 600_000);

  afterAll(async () => {
    await others.remove();
  });

  it('The services of compose.yaml run, and its sign-in finds the process of the service', async () => {
    const place = testFolder();
    const started = await startCompose(yaml.get('compose/compose.yaml')?.[0] as Compose, {
      folder: place,
      volumes: path.join(place, 'volumes'),
      images: { tributary: image },
    });
    const [service, signIn] = [started.of('tributary'), started.of('sign-in')];
    expect(await signIn.completed, signIn.container().output()).toBe(0);
    const users = usersFrom(0);
    expect(await exchange(readSignIn(signIn.container().output()), service.container(), users)).toEqual(users);
    expect(await service.stop()).toBeLessThan(1);
    expect(await service.completed).toBe(0);
    expect(service.restarts()).toBe(0);
  });

  it('The services of cluster.yaml import and export through the proxy, also after one host of each role has ended', async () => {
    const place = testFolder();
    const deploy = path.join(place, 'compose');
    cpSync(path.join(packageRoot, 'deploy/compose'), deploy, { recursive: true });
    execFileSync('sh', [path.join(deploy, 'secrets.sh')]);
    const started = await startCompose(yaml.get('compose/cluster.yaml')?.[0] as Compose, {
      folder: deploy,
      volumes: path.join(place, 'volumes'),
      images: { tributary: image, versitygw: others.versitygw, 'nginx-unprivileged': others.nginx },
    });
    const signIn = started.of('sign-in');
    expect(await signIn.completed, signIn.container().output()).toBe(0);
    const access = readSignIn(signIn.container().output());
    const proxy = started.of('proxy').container();
    await waitFor('the proxy has a process', () => proxy.execute(['true']).status === 0);
    expect(await exchange(access, proxy, usersFrom(0))).toEqual(usersFrom(0));
    const counts = ['ingest-1', 'ingest-2'].map((name) => countAcknowledged(started.of(name).container()));
    expect(counts.every((count) => count > 0)).toBe(true);
    expect(counts.reduce((sum, count) => sum + count)).toBe(100);

    const ended = ['ingest-1', 'compact-1', 'export-1'].map((name) => started.of(name));
    const shares = await Promise.all(ended.map((one) => one.stop()));
    expect(Math.max(...shares)).toBeLessThan(1);
    expect(await Promise.all(ended.map((one) => one.completed))).toEqual([0, 0, 0]);
    expect(await exchange(access, proxy, usersFrom(100))).toEqual(usersFrom(0, 200));
  });

  it.skipIf(kubectl === undefined)(
    'The pods of the cluster, as the commands of the page create them, import and export, pass their probes, and drain within their grace',
    async () => {
      const place = testFolder();
      copyManifests(place, {
        TRIBUTARY_S3_ENDPOINT: 'http://s3:7070',
        TRIBUTARY_S3_PATH_STYLE: 'on',
        TRIBUTARY_PUBLIC_S2S_URL: 'http://tributary-ingest-0:8080',
        TRIBUTARY_PUBLIC_API_URL: 'http://tributary-export-0:8081',
      });
      const manifests = await renderBlock('SERVICE=', place, python ?? '');
      const values = yaml.get('kubernetes/cluster/nats-values.yaml')?.[0] as NatsValues;
      const network = await startNetwork([...listPods(manifests), ...listNatsServers(values), 's3', 'client']);
      startBucket(place, network);
      startNats(values, { manifests, image, network, folder: place });
      const pods = startPods({ manifests, image, network, folder: path.join(place, 'pods') });
      expect(pods).toHaveLength(6);
      for (const pod of pods) {
        await waitFor(`${pod.name} is ready`, () => pod.probe('readinessProbe') === 200, 300_000);
        expect([pod.probe('startupProbe'), pod.probe('livenessProbe')], pod.name).toEqual([200, 200]);
      }
      const of = (component: string) => pods.filter((pod) => pod.component === component);
      const init = of('export')[0]?.container().execute(['tributary', 'init']);
      expect(init?.status, init?.output).toBe(0);
      const access = readSignIn(init?.output ?? '');
      const client = { network, name: 'client' };
      expect(await exchange(access, client, usersFrom(0))).toEqual(usersFrom(0));

      for (const pod of [of('ingest')[1], of('compact')[0], of('export')[1]]) {
        if (pod === undefined) throw new Error('no pod');
        const stopped = pod.stop();
        await waitFor(`${pod.name} is not ready`, () => pod.probe('readinessProbe') === 503);
        expect(pod.probe('livenessProbe'), pod.name).toBe(200);
        expect(await stopped, pod.name).toBeLessThan(1);
        expect(await pod.completed, pod.container().output()).toBe(0);
      }
      expect(await exchange(access, client, usersFrom(100))).toEqual(usersFrom(0, 200));
    },
  );
});

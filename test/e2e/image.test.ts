import { rmSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { readDockerfile, waitUntilHealthy } from '../helpers/deployment.ts';
import { temporaryFolder } from '../helpers/folder.ts';
import { findFreePorts } from '../helpers/free-ports.ts';
import {
  buildImage,
  findNatsVersion,
  findObstacle,
  makeVolume,
  readBillOfMaterials,
  type BuiltImage,
} from '../helpers/image.ts';
import { isWhole } from '../helpers/in-turn.ts';
import { readLockFile } from '../helpers/lock-file.ts';
import { packageRoot } from '../../src/runtime/files/package-files.ts';

/** The image, built from the Dockerfile on Debian's packages, and containers of it as a strict engine runs them. */

const obstacle = isWhole ? findObstacle() : 'in the nightly run (TRIBUTARY_TEST_WHOLE=1)';
if (obstacle !== undefined) process.stderr.write(`skipped: the image is not built: ${obstacle}\n`);
const mebibyte = 1024 * 1024;
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
  it('The image adds less than 250 MB to its base, has labels, and runs as another user than root', () => {
    expect(image.addedBytes).toBeLessThan(250 * mebibyte);
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

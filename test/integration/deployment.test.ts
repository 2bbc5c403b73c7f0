import { Ajv2020 } from 'ajv/dist/2020.js';
import { execFile, spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { promisify } from 'node:util';
import { describe, expect, it } from 'vitest';
import { settings } from '../../src/config/settings.ts';
import { parseConfig } from '../../src/config.ts';
import { packageRoot } from '../../src/runtime/files/package-files.ts';
import type { Compose, ComposeService } from '../helpers/compose.ts';
import {
  dockerfile,
  findComposeSchema,
  listDeployFiles,
  mapVolume,
  passesCheck,
  readDeployYaml,
  readDockerfile,
  startLocally,
  waitUntilHealthy,
} from '../helpers/deployment.ts';
import { testFolder } from '../helpers/folder.ts';
import { findFreePorts } from '../helpers/free-ports.ts';
import { cacheFolder } from '../../src/nats-setup/ensure-nats-server.ts';
import { inWholeRun } from '../helpers/in-turn.ts';
import { kubectl, type PodSpec, type Probe } from '../helpers/kubernetes.ts';
import { findProgram } from '../helpers/shell.ts';
import { findPythonDeployment } from '../helpers/python-engines.ts';

/** The image, compose files and manifests: valid by their schemas, and the programs that they start run. */

const run = promisify(execFile);
const python = await findPythonDeployment();
const composeSchema = python === undefined ? undefined : await findComposeSchema();
const yaml = python === undefined ? new Map<string, readonly unknown[]>() : await readDeployYaml(python);
const image = readDockerfile();
const { version } = JSON.parse(readFileSync(path.join(packageRoot, 'package.json'), 'utf8')) as { version: string };

interface Workload {
  readonly kind: string;
  readonly spec: { readonly template: { readonly spec: PodSpec } };
}

/** Returns the first document of a file of deploy. */
const documentOf = (file: string): unknown => yaml.get(file)?.[0];

/** Returns the settings that a test needs besides those of a container: free ports, the machine's nats-server. */
async function localSettings() {
  const [s2s = 0, api = 0, ops = 0] = await findFreePorts(3);
  const environment = {
    TRIBUTARY_HOST: '127.0.0.1',
    TRIBUTARY_S2S_PORT: String(s2s),
    TRIBUTARY_API_PORT: String(api),
    TRIBUTARY_OPS_PORT: String(ops),
    TRIBUTARY_CACHE_DIR: cacheFolder(process.env),
  };
  const addresses = {
    TRIBUTARY_PUBLIC_S2S_URL: `http://127.0.0.1:${s2s}`,
    TRIBUTARY_PUBLIC_API_URL: `http://127.0.0.1:${api}`,
  };
  return { ports: { 8080: s2s, 8081: api, 8082: ops }, environment, addresses };
}

interface Kustomization {
  readonly resources?: readonly string[];
  readonly configMapGenerator?: readonly { readonly literals: readonly string[] }[];
}

/** Returns the settings of an overlay. */
const literalsOf = (overlay: string): Readonly<Record<string, string>> =>
  Object.fromEntries(
    ((documentOf(`kubernetes/${overlay}/kustomization.yaml`) as Kustomization).configMapGenerator ?? []).flatMap(
      ({ literals }) =>
        literals.map((literal) => [literal.slice(0, literal.indexOf('=')), literal.slice(literal.indexOf('=') + 1)]),
    ),
  );

/** Returns the commands of a program in the blocks and tables of the pages on containers. */
function listCommands(program: string): readonly string[] {
  const pages = ['containers', 'install'].map((name) =>
    readFileSync(path.join(packageRoot, `docs/${name}.md`), 'utf8'),
  );
  const commands = pages.join('\n').matchAll(new RegExp(`(?:^|\`|&& )(${program} [^\\n\`&]+)`, 'gm'));
  return [...commands].map(([, words = '']) => words.trim());
}

const docker = findProgram('docker');
for (const [name, found] of Object.entries({ docker, kubectl }))
  if (found === undefined) process.stderr.write(`skipped: ${name} is missing, which checks commands of the pages\n`);

describe('the commands of the pages', () => {
  it.skipIf(docker === undefined)("Docker's client accepts every option, and then looks for its engine", () => {
    const commands = listCommands('docker').filter((words) => !words.startsWith('docker compose'));
    expect(commands.length).toBeGreaterThan(4);
    for (const words of commands) {
      const env = { PATH: process.env['PATH'], DOCKER_HOST: 'unix:///nonexistent', DOCKER_BUILDKIT: '0' };
      const { stderr } = spawnSync('sh', ['-c', words], { cwd: packageRoot, env, encoding: 'utf8' });
      expect(stderr, words).toMatch(/Cannot connect to the Docker daemon/);
    }
  });

  it.skipIf(kubectl === undefined)('The program kubectl renders each folder that the pages apply', async () => {
    const folders = listCommands('kubectl').flatMap(
      (words) => /^kubectl apply --kustomize (\S+)$/.exec(words)?.[1] ?? [],
    );
    expect(new Set(folders)).toEqual(new Set(['deploy/kubernetes/one-node', 'deploy/kubernetes/cluster']));
    for (const folder of folders) {
      const { stdout } = await run(kubectl ?? '', ['kustomize', folder], { cwd: packageRoot });
      const images = [...stdout.matchAll(/^ +image: (.*)$/gm)].map(([, name]) => name);
      expect(new Set(images)).toEqual(new Set([`registry.example.com/tributary:${version}`]));
    }
  });
});

describe('the Dockerfile', () => {
  it.skipIf(python === undefined)('The Dockerfile has no fault that hadolint finds', async () => {
    const { stdout } = await run(path.join(path.dirname(python ?? ''), 'hadolint'), [dockerfile]);
    expect(stdout).toBe('');
  });

  it('The Dockerfile names no processor, runs as user 10001, and copies every file that the build reads', () => {
    const text = readFileSync(dockerfile, 'utf8');
    expect(text).not.toMatch(/amd64|x86_64|arm64|aarch64/);
    expect(image.user).toBe('10001:10001');
    expect(image.environment['TRIBUTARY_DRAIN_MS']).toBe('5000');
    expect(text).toContain(`ARG VERSION=${version}\n`);
    const sent = readFileSync(path.join(packageRoot, '.dockerignore'), 'utf8');
    for (const [, names = ''] of text.matchAll(/^COPY (?!--from)(.*) \.\/$/gm))
      for (const name of names.split(' ')) expect(sent, name).toContain(`\n!${name}\n`);
  });
});

describe('the files of deploy', () => {
  const files = [dockerfile, ...['.yaml', '.sh', '.conf'].flatMap(listDeployFiles)];

  it('The files name only settings that exist, with values that the program accepts', () => {
    const known = Object.values(settings).flatMap(({ name, isSecret }) => [
      name,
      ...(isSecret === true ? [`${name}_FILE`] : []),
    ]);
    const given: Record<string, string> = {};
    for (const file of files) {
      for (const [, name = '', value = ''] of readFileSync(file, 'utf8').matchAll(
        /TRIBUTARY_(\w+)(?:=|: |, value: )?"?([^\s"}\\`]*)/g,
      )) {
        if (['CACHE_DIR', 'OPS_PORT'].includes(name)) continue;
        expect(known, path.relative(packageRoot, file)).toContain(name);
        if (value !== '' && !name.endsWith('_FILE')) given[`TRIBUTARY_${name}`] = value;
      }
    }
    expect(Object.keys(given).length).toBeGreaterThan(10);
    expect(parseConfig(given)).toMatchObject({ drainMs: 10_000, opsHost: '0.0.0.0', quotaIp: [] });
  });

  it.skipIf(composeSchema === undefined)('Each compose file is valid by the schema of the specification', () => {
    const ajv = new Ajv2020({ strict: false, validateFormats: false, allErrors: true });
    const validate = ajv.compile(composeSchema ?? {});
    for (const file of ['compose/compose.yaml', 'compose/cluster.yaml'])
      expect(validate(documentOf(file)) ? [] : validate.errors, file).toEqual([]);
  });

  it.skipIf(python === undefined)(
    'Each manifest is valid by the schemas of Kubernetes',
    { timeout: 240_000 },
    async () => {
      const manifests = listDeployFiles('.yaml').filter(
        (file) => file.includes('/kubernetes/') && !/kustomization|values/.test(path.basename(file)),
      );
      expect(manifests.length).toBeGreaterThan(8);
      await run(path.join(path.dirname(python ?? ''), 'kubernetes-validate'), ['--strict', ...manifests]);
    },
  );

  it.skipIf(python === undefined)('Each kustomization names the other files of its folder, and leaves none out', () => {
    const kustomizations = [...yaml.keys()].filter((file) => path.basename(file) === 'kustomization.yaml');
    expect(kustomizations).toHaveLength(4);
    for (const file of kustomizations) {
      const others = [...yaml.keys()].filter((each) => path.dirname(each) === path.dirname(file) && each !== file);
      const named = ((documentOf(file) as Kustomization).resources ?? []).filter((name) => !name.startsWith('../'));
      const wanted = others.map((each) => path.basename(each)).filter((name) => name !== 'nats-values.yaml');
      expect(named.toSorted(), file).toEqual(wanted.toSorted());
    }
  });

  it.skipIf(python === undefined)('Each workload has as much grace as its drain and its processes need', () => {
    let workloads = 0;
    for (const [file, documents] of yaml) {
      for (const { kind, spec } of documents as readonly Workload[]) {
        if (kind !== 'Deployment' && kind !== 'StatefulSet') continue;
        workloads += 1;
        const drainSeconds = Number(literalsOf(path.basename(path.dirname(file)))['TRIBUTARY_DRAIN_MS']) / 1000;
        // 30 s for each process, one after the other; a role alone has one.
        const processes = kind === 'StatefulSet' ? 7 : 1;
        const { terminationGracePeriodSeconds: grace } = spec.template.spec;
        expect(grace, file).toBeGreaterThanOrEqual(drainSeconds + processes * 30);
      }
    }
    expect(workloads).toBe(4);
  });
});

describe.skipIf(python === undefined)('the form for one machine', { timeout: 600_000 }, () => {
  it('The services of compose.yaml start, pass the check of the image, print a sign-in that works, and end by SIGTERM', async ({
    skip,
  }) => {
    inWholeRun(skip);
    const { tributary, 'sign-in': signIn } = (documentOf('compose/compose.yaml') as Compose).services;
    if (tributary === undefined || signIn === undefined) throw new Error('a service is missing');
    const { environment: local, addresses } = await localSettings();
    const folder = testFolder();
    const environmentOf = ({ environment = {} }: ComposeService) => ({
      ...mapVolume({ ...image.environment, ...environment }, folder),
      ...local,
      ...addresses,
    });
    const service = startLocally(
      [...image.entrypoint, ...(tributary.command ?? image.command)],
      environmentOf(tributary),
    );
    await waitUntilHealthy(service, () => passesCheck(image.healthcheck, environmentOf(tributary)));

    const words = [...(signIn.entrypoint ?? image.entrypoint), ...(signIn.command ?? [])];
    const first = startLocally(words, environmentOf(signIn));
    expect(await first.end(), first.output()).toBe(0);
    const [, url = '', idUser = '', secret = ''] =
      /Sign in to the console at (\S+) with the user id (\d+) and the secret (\S+)\.\n/.exec(first.output()) ?? [];
    expect(url).toBe(`${addresses.TRIBUTARY_PUBLIC_API_URL}/console/`);
    expect((await fetch(url)).status).toBe(200);
    const session = await fetch(`${addresses.TRIBUTARY_PUBLIC_API_URL}/console/session`, {
      method: 'POST',
      body: JSON.stringify({ idUser, secret }),
    });
    expect(session.status).toBe(200);
    const again = startLocally(words, environmentOf(signIn));
    expect(await again.end(), again.output()).toBe(0);
    expect(again.output()).toContain(secret);

    const graceSeconds = Number(/^(\d+)s$/.exec(tributary.stop_grace_period ?? '')?.[1]);
    expect(await service.stop()).toBeLessThan(graceSeconds * 1000);
    expect(await service.end()).toBe(0);
  });

  it('The pod of the StatefulSet starts with its settings, and its probes pass until it drains', async ({ skip }) => {
    inWholeRun(skip);
    const [container] = (documentOf('kubernetes/one-node/stateful-set.yaml') as Workload).spec.template.spec.containers;
    if (container === undefined) throw new Error('no container');
    const { environment: local, ports } = await localSettings();
    const environment: Readonly<Record<string, string>> = {
      ...mapVolume({ ...image.environment, ...literalsOf('one-node') }, testFolder()),
      ...local,
    };
    const pod = startLocally([...image.entrypoint, ...container.args], environment);
    const probe = async ({ httpGet }: Probe): Promise<number> => {
      const port = container.ports.find(({ name }) => name === httpGet.port)?.containerPort;
      const address = `http://127.0.0.1:${ports[port as 8080]}${httpGet.path}`;
      return await fetch(address).then(
        ({ status }) => status,
        () => 0,
      );
    };
    await waitUntilHealthy(pod, async () => (await probe(container.readinessProbe)) === 200);
    expect(await probe(container.startupProbe)).toBe(200);
    expect(await probe(container.livenessProbe)).toBe(200);
    const stopped = pod.stop();
    await expect.poll(() => probe(container.readinessProbe)).toBe(503);
    expect(await probe(container.livenessProbe)).toBe(200);
    expect(await stopped).toBeGreaterThan(Number(environment['TRIBUTARY_DRAIN_MS']));
    expect(await pod.end()).toBe(0);
  });
});

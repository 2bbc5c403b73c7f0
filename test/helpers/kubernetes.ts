import { execFile } from 'node:child_process';
import { chmodSync, chownSync, cpSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { promisify } from 'node:util';
import { packageRoot } from '../../src/runtime/files/package-files.ts';
import { keepRunning, type StartedService } from './compose.ts';
import { runContainer, type ContainerImage, type ContainerNetwork, type Mount } from './containers.ts';
import { parseYaml } from './deployment.ts';
import { findProgram } from './shell.ts';

/** Manifests as kubectl renders them, and their pods as containers. */

const run = promisify(execFile);

export interface Probe {
  readonly httpGet: { readonly path: string; readonly port: string };
}

export interface PodSpec {
  readonly terminationGracePeriodSeconds: number;
  readonly securityContext: { readonly runAsUser: number; readonly runAsGroup: number; readonly fsGroup: number };
  readonly containers: readonly {
    readonly args: readonly string[];
    readonly envFrom: readonly { readonly configMapRef: { readonly name: string } }[];
    readonly env?: readonly { readonly name: string; readonly value: string }[];
    readonly ports: readonly { readonly name: string; readonly containerPort: number }[];
    readonly startupProbe: Probe;
    readonly livenessProbe: Probe;
    readonly readinessProbe: Probe;
    readonly volumeMounts: readonly { readonly name: string; readonly mountPath: string }[];
  }[];
  readonly volumes: readonly { readonly name: string; readonly secret?: { readonly secretName: string } }[];
}

/** A workload, a configuration map or a secret. */
export interface Manifest {
  readonly kind: string;
  readonly metadata: { readonly name: string };
  readonly data?: Readonly<Record<string, string>>;
  readonly spec: { readonly replicas: number; readonly template: { readonly spec: PodSpec } };
}

export const kubectl = findProgram('kubectl');

/**
 * Runs the block of docs/containers.md that begins with these words, in a folder that has `deploy/kubernetes`. kubectl
 * prints what it would create; helm and the other commands of kubectl do nothing. Returns the manifests in their order.
 */
export async function renderBlock(words: string, folder: string, python: string): Promise<readonly Manifest[]> {
  const page = readFileSync(path.join(packageRoot, 'docs/containers.md'), 'utf8');
  const block = [...page.matchAll(/^```sh\n(.*?)^```$/gms)].find(([, text]) => text?.startsWith(words))?.[1];
  if (block === undefined) throw new Error(`no block begins with ${words}`);
  const bin = path.join(folder, 'bin');
  mkdirSync(bin);
  const programs = {
    kubectl: `echo ---
case " $* " in
*" create "*) exec ${kubectl} "$@" --dry-run=client --output=yaml ;;
*" apply --kustomize "*) exec ${kubectl} kustomize "$3" ;;
esac`,
    helm: '',
  };
  for (const [name, text] of Object.entries(programs)) {
    writeFileSync(path.join(bin, name), `#!/bin/sh\n${text}\n`);
    chmodSync(path.join(bin, name), 0o755);
  }
  const env = { HOME: folder, PATH: `${bin}:${process.env['PATH'] ?? ''}` };
  const { stdout } = await run('sh', ['-euc', block], { cwd: folder, env });
  const file = path.join(folder, 'rendered.yaml');
  writeFileSync(file, stdout);
  const [documents = []] = await parseYaml(python, [file]);
  return (documents as readonly (Manifest | null)[]).filter((document) => document !== null);
}

export const awsCredentials = { accessKeyId: 'tester', secretAccessKey: 'tester-secret' };

/**
 * Copies the manifests to a folder, and changes the settings of the cluster as the page says. The folder is also the home
 * of an operator with credentials.
 */
export function copyManifests(folder: string, settings: Readonly<Record<string, string>>): void {
  cpSync(path.join(packageRoot, 'deploy/kubernetes'), path.join(folder, 'deploy/kubernetes'), { recursive: true });
  const file = path.join(folder, 'deploy/kubernetes/cluster/kustomization.yaml');
  let text = readFileSync(file, 'utf8');
  for (const [name, value] of Object.entries(settings)) {
    const changed = text.replace(new RegExp(`^( +)(?:# )?- ${name}=.*$`, 'm'), `$1- ${name}=${value}`);
    if (changed === text) throw new Error(`${name} is not in ${file}`);
    text = changed;
  }
  writeFileSync(file, text);
  const { accessKeyId, secretAccessKey } = awsCredentials;
  const lines = ['[default]', `aws_access_key_id = ${accessKeyId}`, `aws_secret_access_key = ${secretAccessKey}`, ''];
  mkdirSync(path.join(folder, '.aws'));
  writeFileSync(path.join(folder, '.aws/credentials'), lines.join('\n'));
}

/** Returns the values of a secret by key. */
export function readSecret(manifests: readonly Manifest[], name: string): Readonly<Record<string, string>> {
  const found = manifests.find(({ kind, metadata }) => kind === 'Secret' && metadata.name === name);
  return Object.fromEntries(
    Object.entries(found?.data ?? {}).map(([key, value]) => [key, Buffer.from(value, 'base64').toString()]),
  );
}

export interface StartedPod extends StartedService {
  readonly name: string;
  readonly component: string;
  /** Requests a probe as a node does; returns the status, 0 without a response. */
  probe(which: 'startupProbe' | 'livenessProbe' | 'readinessProbe'): number;
}

interface PodOptions {
  readonly manifests: readonly Manifest[];
  readonly image: ContainerImage;
  readonly network: ContainerNetwork;
  /** Folder for volumes. */
  readonly folder: string;
}

/** Creates the folders of a pod's volumes, with its group as owner, as Kubernetes does. */
function mountsOf(name: string, spec: PodSpec, { manifests, folder }: PodOptions): readonly Mount[] {
  const { fsGroup } = spec.securityContext;
  return (spec.containers[0]?.volumeMounts ?? []).map(({ name: volume, mountPath }) => {
    const place = path.join(folder, name, volume);
    mkdirSync(place, { recursive: true });
    chownSync(place, 0, fsGroup);
    chmodSync(place, 0o2775);
    const { secretName } = spec.volumes.find((each) => each.name === volume)?.secret ?? {};
    for (const [key, value] of Object.entries(secretName === undefined ? {} : readSecret(manifests, secretName))) {
      writeFileSync(path.join(place, key), value, { mode: 0o440 });
      chownSync(path.join(place, key), 0, fsGroup);
    }
    return { source: place, target: mountPath, isReadOnly: secretName !== undefined };
  });
}

/** Lists the names of the pods of all deployments. */
export function listPods(manifests: readonly Manifest[]): readonly string[] {
  return manifests
    .filter(({ kind }) => kind === 'Deployment')
    .flatMap(({ metadata, spec }) => Array.from({ length: spec.replicas }, (_, index) => `${metadata.name}-${index}`));
}

/** Starts the pods of all deployments at once, each in the network under its name. */
export function startPods(options: PodOptions): readonly StartedPod[] {
  const { manifests, image, network } = options;
  return listPods(manifests).map((name) => {
    const found = manifests.find((each) => each.kind === 'Deployment' && name.startsWith(`${each.metadata.name}-`));
    const spec = found?.spec.template.spec;
    const container = spec?.containers[0];
    if (spec === undefined || container === undefined) throw new Error(`${name} has no container`);
    const { args, env = [], envFrom, ports } = container;
    const settings = envFrom.map(
      ({ configMapRef }) => manifests.find(({ metadata }) => metadata.name === configMapRef.name)?.data ?? {},
    );
    const environment = Object.assign(
      {},
      ...settings,
      Object.fromEntries(env.map((one) => [one.name, one.value])),
    ) as Readonly<Record<string, string>>;
    const { runAsUser, runAsGroup } = spec.securityContext;
    const mounts = mountsOf(name, spec, options);
    const start = () =>
      runContainer(image, {
        words: [...image.entrypoint, ...args],
        environment,
        user: `${runAsUser}:${runAsGroup}`,
        mounts,
        hostname: name,
        network: { network, name },
      });
    return {
      ...keepRunning(start, 'always', spec.terminationGracePeriodSeconds),
      name,
      component: found?.metadata.name.split('-').at(-1) ?? '',
      probe(which) {
        const { httpGet } = container[which];
        const port = ports.find((one) => one.name === httpGet.port)?.containerPort;
        return network.request(`http://${network.addressOf(name)}:${port}${httpGet.path}`);
      },
    };
  });
}

/** The values that we pass to NATS's own chart. */
export interface NatsValues {
  readonly config: {
    readonly cluster: { readonly replicas: number };
    readonly jetstream: {
      readonly fileStore: { readonly pvc: { readonly size: string } };
      readonly merge: Readonly<Record<string, unknown>>;
    };
    readonly merge: Readonly<Record<string, unknown>>;
  };
  readonly container: {
    readonly env: Readonly<Record<string, { readonly valueFrom: { readonly secretKeyRef: SecretKey } }>>;
  };
}

interface SecretKey {
  readonly name: string;
  readonly key: string;
}

/** Lists the names of the servers that the chart makes of our values. */
export function listNatsServers({ config }: NatsValues): readonly string[] {
  return Array.from({ length: config.cluster.replicas }, (_, index) => `nats-${index}.nats-headless`);
}

/** Starts NATS servers with the configuration that the chart makes of our values, with the nats-server of the image. */
export function startNats(values: NatsValues, { manifests, image, network, folder }: PodOptions): void {
  const { jetstream, merge } = values.config;
  const servers = listNatsServers(values);
  const config = {
    ...merge,
    port: 4222,
    server_name: '<< $SERVER_NAME >>',
    jetstream: {
      store_dir: '/var/lib/tributary',
      max_file_store: `<< ${jetstream.fileStore.pvc.size} >>`,
      ...jetstream.merge,
    },
    cluster: { name: 'nats', port: 6222, routes: servers.map((name) => `nats://${name}:6222`) },
  };
  const file = path.join(folder, 'nats.conf');
  writeFileSync(file, JSON.stringify(config, undefined, 2).replaceAll(/"<< (.*?) >>"/g, '$1'));
  const passwords = Object.entries(values.container.env).map(([name, { valueFrom }]) => {
    const { name: secret, key } = valueFrom.secretKeyRef;
    return [name, readSecret(manifests, secret)[key] ?? ''] as const;
  });
  for (const name of servers) {
    const store = path.join(folder, name);
    mkdirSync(store);
    chownSync(store, 10_001, 10_001);
    runContainer(image, {
      words: ['nats-server', '--config', '/etc/nats/nats.conf'],
      environment: { SERVER_NAME: name, ...Object.fromEntries(passwords) },
      mounts: [
        { source: store, target: '/var/lib/tributary' },
        { source: file, target: '/etc/nats/nats.conf', isReadOnly: true },
      ],
      network: { network, name },
    });
  }
}

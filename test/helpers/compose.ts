import { chownSync, mkdirSync, readFileSync, statSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as pass } from 'node:timers/promises';
import { onTestFinished } from 'vitest';
import { runContainer, startNetwork, type Container, type ContainerImage, type Mount } from './containers.ts';
import { waitUntilHealthy } from './deployment.ts';

/** Starts the services of a compose file as containers, in the order of their dependencies. */

type Condition = 'service_started' | 'service_healthy' | 'service_completed_successfully';

export interface ComposeService {
  readonly image: string;
  readonly build?: string;
  readonly entrypoint?: readonly string[];
  readonly command?: readonly string[];
  readonly environment?: Readonly<Record<string, string>>;
  readonly env_file?: string;
  readonly user?: string;
  readonly hostname?: string;
  readonly volumes?: readonly string[];
  readonly secrets?: readonly string[];
  readonly read_only?: boolean;
  readonly tmpfs?: readonly string[];
  readonly cap_drop?: readonly string[];
  readonly security_opt?: readonly string[];
  readonly restart?: string;
  readonly depends_on?: readonly string[] | Readonly<Record<string, { readonly condition: Condition }>>;
  readonly healthcheck?: { readonly disable: boolean };
  readonly stop_grace_period?: string;
  readonly network_mode?: string;
  readonly pid?: string;
  readonly ports?: readonly string[];
}

export interface Compose {
  readonly services: Readonly<Record<string, ComposeService>>;
  readonly secrets?: Readonly<Record<string, { readonly file: string }>>;
}

/** Keys that the tests apply: another one would be left out without notice. */
const applied = new Set(
  `image build entrypoint command environment env_file user hostname volumes secrets read_only tmpfs cap_drop
   security_opt restart depends_on healthcheck stop_grace_period network_mode pid ports`.split(/\s+/),
);

/** A started service: its container, or the one that replaced it after a failure. */
export interface StartedService {
  container(): Container;
  /** Number of times that it was started again. */
  restarts(): number;
  /** Waits until it has ended and is not restarted; returns the exit code. */
  readonly completed: Promise<number | null>;
  /** Sends SIGTERM. Returns the share of its grace that it took. */
  stop(): Promise<number>;
}

export interface ComposeOptions {
  /** Folder of the compose file, with its relative files. */
  readonly folder: string;
  /** Folder for volumes. */
  readonly volumes: string;
  /** By the name without registry and tag. */
  readonly images: Readonly<Record<string, ContainerImage>>;
}

/** Returns what to mount for a service; a new volume has the owner of its place in the image. */
function mountsOf(
  name: string,
  service: ComposeService,
  file: Compose,
  image: ContainerImage,
  options: ComposeOptions,
) {
  const makeVolume = (volume: string, target: string): string => {
    const place = path.join(options.volumes, volume);
    if (statSync(place, { throwIfNoEntry: false }) !== undefined) return place;
    mkdirSync(place, { recursive: true });
    const { uid, gid } = statSync(path.join(image.root, target), { throwIfNoEntry: false }) ?? { uid: 0, gid: 0 };
    chownSync(place, uid, gid);
    return place;
  };
  const named = (service.volumes ?? []).map((text): Mount => {
    const [source = '', target = '', mode] = text.split(':');
    const isFolder = source.startsWith('.');
    const place = isFolder ? path.resolve(options.folder, source) : makeVolume(source, target);
    return { source: place, target, isReadOnly: mode === 'ro' };
  });
  const anonymous = image.volumes
    .filter((target) => !named.some((mount) => mount.target === target))
    .map((target): Mount => ({ source: makeVolume(`of-${name}`, target), target }));
  const secrets = (service.secrets ?? []).map((secret): Mount => {
    const source = path.resolve(options.folder, file.secrets?.[secret]?.file ?? '');
    return { source, target: `/run/secrets/${secret}`, isReadOnly: true };
  });
  return [...named, ...anonymous, ...secrets];
}

function environmentOf({ environment = {}, env_file: file }: ComposeService, folder: string) {
  const lines = file === undefined ? '' : readFileSync(path.join(folder, file), 'utf8');
  const read = [...lines.matchAll(/^(\w+)=(.*)$/gm)].map(([, name = '', value = '']) => [name, value]);
  return { ...Object.fromEntries(read), ...environment } as Readonly<Record<string, string>>;
}

/**
 * Starts a container, and restarts it as its policy says (`on-failure`, or always) until it is stopped. `graceSeconds`:
 * time to end after SIGTERM.
 */
export function keepRunning(start: () => Container, restart: string | undefined, graceSeconds: number): StartedService {
  let isStopping = false;
  let restarts = 0;
  const startOnce = (): Container => {
    const started = start();
    onTestFinished(() => void (isStopping = true));
    return started;
  };
  let current = startOnce();
  const watch = async (): Promise<number | null> => {
    for (;;) {
      const code = await current.end();
      if (isStopping || restart === undefined || (restart === 'on-failure' && code === 0)) return code;
      await pass(1000);
      if (isStopping) return code;
      restarts += 1;
      current = startOnce();
    }
  };
  return {
    container: () => current,
    restarts: () => restarts,
    completed: watch(),
    async stop() {
      isStopping = true;
      return (await current.stop()) / (graceSeconds * 1000);
    },
  };
}

/** Starts all services, and waits until each has what it depends on. */
export async function startCompose(file: Compose, options: ComposeOptions) {
  const network = await startNetwork(Object.keys(file.services));
  const started = new Map<string, Promise<StartedService>>();
  const imageOf = ({ image }: ComposeService): ContainerImage => {
    const found = options.images[image.split('/').at(-1)?.split(':')[0] ?? ''];
    if (found === undefined) throw new Error(`cannot find the image ${image}`);
    return found;
  };

  async function meet(name: string, condition: Condition): Promise<void> {
    const service = await ensure(name);
    const { healthcheck } = imageOf(file.services[name] as ComposeService);
    if (condition === 'service_healthy')
      await waitUntilHealthy(service.container(), () => service.container().execute(healthcheck).status === 0);
    if (condition === 'service_completed_successfully' && (await service.completed) !== 0)
      throw new Error(`${name}: ${service.container().output()}`);
  }

  async function findJoined(of: string | undefined): Promise<Container | undefined> {
    return of?.startsWith('service:') === true ? (await ensure(of.slice('service:'.length))).container() : undefined;
  }

  async function start(name: string): Promise<StartedService> {
    const service = file.services[name];
    if (service === undefined) throw new Error(`cannot find the service ${name}`);
    const others = Object.keys(service).filter((key) => !applied.has(key));
    if (others.length > 0) throw new Error(`${name}: ${others.join(', ')} would not be applied`);
    const { depends_on: needs = [] } = service;
    const conditions = Array.isArray(needs)
      ? needs.map((other: string) => [other, { condition: 'service_started' }] as const)
      : Object.entries(needs as Readonly<Record<string, { readonly condition: Condition }>>);
    await Promise.all(conditions.map(([other, { condition }]) => meet(other, condition)));
    const image = imageOf(service);
    const { entrypoint, command, user = image.user, hostname, network_mode: mode } = service;
    const [ofNetwork, ofProcesses] = [await findJoined(mode), await findJoined(service.pid)];
    const words = [
      ...(entrypoint ?? image.entrypoint),
      ...(command ?? (entrypoint === undefined ? image.command : [])),
    ];
    return keepRunning(
      () =>
        runContainer(image, {
          words,
          environment: environmentOf(service, options.folder),
          user,
          mounts: mountsOf(name, service, file, image, options),
          ...(hostname === undefined ? {} : { hostname }),
          isPrivileged: service.cap_drop?.includes('ALL') !== true,
          network: ofNetwork ?? { network, name },
          processesOf: ofProcesses,
        }),
      service.restart,
      Number.parseInt(service.stop_grace_period ?? '10s', 10),
    );
  }

  function ensure(name: string): Promise<StartedService> {
    const known = started.get(name) ?? start(name);
    started.set(name, known);
    return known;
  }

  const services = new Map(
    await Promise.all(Object.keys(file.services).map(async (name) => [name, await ensure(name)] as const)),
  );
  return {
    of(name: string): StartedService {
      const service = services.get(name);
      if (service === undefined) throw new Error(`cannot find the service ${name}`);
      return service;
    },
  };
}

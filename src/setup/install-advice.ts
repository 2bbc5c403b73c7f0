import { platform } from 'node:os';
import { findTextFile } from '../runtime/files/durable-file.ts';

/** Which system this is, as far as getting a package matters. */
export interface System {
  /** `linux`, `darwin`, ... as Node names it. */
  readonly platform: string;
  /**
   * The distribution and those it is built on, nearest first, as os-release names them: `['ubuntu', 'debian']`. Empty
   * elsewhere.
   */
  readonly family: readonly string[];
}

/** Reads which system this is; on Linux from `etc`'s os-release. */
export async function readSystem(etc: string): Promise<System> {
  const text = platform() === 'linux' ? ((await findTextFile(`${etc}/os-release`)) ?? '') : '';
  const value = (name: string): string => new RegExp(`^${name}=["']?([^"'\n]*)`, 'm').exec(text)?.[1] ?? '';
  return {
    platform: platform(),
    family: `${value('ID')} ${value('ID_LIKE')}`.split(' ').filter((name) => name !== ''),
  };
}

const withGo = 'go install github.com/nats-io/nats-server/v2@latest (and put its folder, ~/go/bin, on PATH)';
const commands: Readonly<Record<string, string>> = {
  darwin: 'brew install nats-server',
  alpine: 'apk add nats-server',
  arch: 'pacman -S nats-server',
  nixos: 'nix profile install nixpkgs#nats-server',
  fedora: `dnf install golang, then ${withGo}`,
  rhel: `dnf install golang, then ${withGo}`,
  suse: `zypper install go, then ${withGo}`,
};

/** The command that gets a nats-server on a system, ready to stand in a sentence after "run". */
export function installCommand(system: System): string {
  const name = [system.platform, ...system.family].find((candidate) => Object.hasOwn(commands, candidate));
  return name === undefined ? withGo : (commands[name] ?? withGo);
}

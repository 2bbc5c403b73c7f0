import type { Command } from './command.ts';

const everywhere =
  'Every command answers --help. Those on a data folder take --data DIR (TRIBUTARY_DATA_DIR, or ./data); docs/operating.md has the settings.';

/** Says whether a command's words ask for its usage. What stands behind `--` is a word like any other. */
export function asksForHelp(args: readonly string[]): boolean {
  const end = args.indexOf('--');
  return args.slice(0, end === -1 ? undefined : end).some((word) => word === '--help' || word === '-h');
}

/** The usage of one command: what `tributary COMMAND --help` and `tributary help COMMAND` answer. */
export function renderHelp({ name, usage, summary, details = [] }: Command): string {
  const words = details.length === 0 ? '' : `\n${details.map((line) => `  ${line}\n`).join('')}`;
  return `tributary ${name}${summary === '' ? '' : `: ${summary}`}\n\n  ${usage
    .split('\n')
    .map((line) => line.trim())
    .join('\n  ')}\n${words}\n${everywhere}\n`;
}

/** The list of commands, those without a summary left out: they are the service's own. */
export function renderCommands(commands: readonly Command[]): string {
  const lines = commands
    .filter(({ summary }) => summary !== '')
    .map(({ name, summary, usage }) => `  ${name.padEnd(8)} ${summary}\n       ${usage.split('\n').join('\n       ')}`);
  return `tributary: events in over HTTP, an open Parquet lake, raw exports out.\n\n${lines.join('\n')}\n\n${everywhere}\n`;
}

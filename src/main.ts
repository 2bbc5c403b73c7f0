#!/usr/bin/env node
import process from 'node:process';
import { fileURLToPath } from 'node:url';
import type { Command, CommandContext } from './cli/command.ts';
import { describeError } from './runtime/errors.ts';

/** Every verb, in the order of the help. Each is loaded when it is called: a small command starts fast and stays small. */
const commands: Readonly<Record<string, () => Promise<Command>>> = {
  start: async () => (await import('./cli/start.ts')).startCommand,
  app: async () => (await import('./cli/app.ts')).appCommand,
  user: async () => (await import('./cli/user.ts')).userCommand,
  status: async () => (await import('./cli/status.ts')).statusCommand,
  lake: async () => (await import('./cli/lake.ts')).lakeCommand,
  failed: async () => (await import('./cli/failed.ts')).failedCommand,
  erase: async () => (await import('./cli/erase.ts')).eraseCommand,
  backup: async () => (await import('./cli/backup.ts')).backupCommand,
  restore: async () => (await import('./cli/restore.ts')).restoreCommand,
  key: async () => (await import('./cli/key.ts')).keyCommand,
  demo: async () => (await import('./cli/demo-command.ts')).demoCommand,
  setup: async () => (await import('./cli/setup.ts')).setupCommand,
  role: async () => (await import('./cli/role.ts')).roleCommand,
};

async function help(): Promise<string> {
  const loaded = await Promise.all(Object.values(commands).map((load) => load()));
  const lines = loaded.filter((command) => command.summary !== '').map((command) => `  ${command.name.padEnd(8)} ${command.summary}\n       ${command.usage}`);
  return `tributary: events in over HTTP, an open Parquet lake, raw exports out.\n\n${lines.join('\n')}\n`;
}

/** A reader that has seen enough (`| head`) is no error; an answer that cannot be written is. */
function watchOutput(): void {
  process.stdout.on('error', (error: NodeJS.ErrnoException) => {
    if (error.code === 'EPIPE') return;
    process.stderr.write(`tributary: the answer cannot be written to standard output: ${describeError(error)}\n`);
    process.exit(1);
  });
  process.stderr.on('error', () => undefined);
}

/** First signal: drain. Second: force. */
function listenForSignals(): { stop: AbortSignal; force: AbortSignal } {
  const stop = new AbortController();
  const force = new AbortController();
  const onSignal = (): void => {
    if (!stop.signal.aborted) return stop.abort();
    force.abort();
    process.exit(1);
  };
  process.on('SIGTERM', onSignal);
  process.on('SIGINT', onSignal);
  return { stop: stop.signal, force: force.signal };
}

/** Ctrl-C reaches every process of the terminal; a role's process stops when its supervisor says so. */
function ignoreInterrupts(): { stop: AbortSignal; force: AbortSignal } {
  process.on('SIGINT', () => undefined);
  return { stop: new AbortController().signal, force: new AbortController().signal };
}

async function main([name, ...args]: readonly string[]): Promise<number> {
  if (name === undefined || name === 'help' || name === '--help') {
    process.stdout.write(await help());
    return name === undefined ? 1 : 0;
  }
  const load = Object.hasOwn(commands, name) ? commands[name] : undefined;
  if (load === undefined) {
    process.stderr.write(`tributary: there is no command '${name}'. 'tributary help' lists them.\n`);
    return 1;
  }
  if (args.includes('--help')) {
    const { summary, usage } = await load();
    process.stdout.write(`${usage}\n       ${summary}\n`);
    return 0;
  }
  const signals = name === 'role' ? ignoreInterrupts() : listenForSignals();
  const command = await load();
  const context: CommandContext = {
    environment: process.env,
    entry: fileURLToPath(import.meta.url),
    answer: (value) => void process.stdout.write(`${JSON.stringify(value)}\n`),
    print: (line) => void process.stdout.write(`${line}\n`),
    note: (line) => void process.stderr.write(`${line}\n`),
    ...signals,
  };
  return (await command.run(args, context)) ?? 0;
}

// What the service and its engines write is for their owner alone.
process.umask(0o077);
watchOutput();
try {
  process.exitCode = await main(process.argv.slice(2));
} catch (error) {
  process.stderr.write(`tributary: ${describeError(error)}\n`);
  process.exitCode = 1;
}
// What was to do is done; a role's channel to its supervisor, or a connection that a stalled broker never answered, would keep
// the process. What was written to a pipe is passed on first.
process.stdout.write('', () => process.exit());

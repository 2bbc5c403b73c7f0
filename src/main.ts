#!/usr/bin/env node
import process from 'node:process';
import { fileURLToPath } from 'node:url';
import { appCommand } from './cli/app.ts';
import type { Command, CommandContext } from './cli/command.ts';
import { demoCommand } from './cli/demo-command.ts';
import { keyCommand } from './cli/key.ts';
import { roleCommand } from './cli/role.ts';
import { setupCommand } from './cli/setup.ts';
import { startCommand } from './cli/start.ts';
import { userCommand } from './cli/user.ts';
import { describeError } from './runtime/errors.ts';

/** Every verb, in the order of the help. */
const commands: readonly Command[] = [startCommand, appCommand, userCommand, keyCommand, demoCommand, setupCommand, roleCommand];

function help(): string {
  const lines = commands.filter((command) => command.summary !== '').map((command) => `  ${command.name.padEnd(8)} ${command.summary}\n       ${command.usage}`);
  return `tributary: events in over HTTP, an open Parquet lake, raw exports out.\n\n${lines.join('\n')}\n`;
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

async function main([name, ...args]: readonly string[]): Promise<number> {
  if (name === undefined || name === 'help' || name === '--help') {
    process.stdout.write(help());
    return name === undefined ? 1 : 0;
  }
  const command = commands.find((candidate) => candidate.name === name);
  if (command === undefined) {
    process.stderr.write(`tributary: there is no command '${name}'. 'tributary help' lists them.\n`);
    return 1;
  }
  const signals = command.name === 'role' ? { stop: new AbortController().signal, force: new AbortController().signal } : listenForSignals();
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

try {
  process.exitCode = await main(process.argv.slice(2));
} catch (error) {
  process.stderr.write(`tributary: ${describeError(error)}\n`);
  process.exitCode = 1;
}
// A role's process has its channel to the supervisor open; what is left to do is done.
if (process.send !== undefined) process.exit();

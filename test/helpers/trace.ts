import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';

/** One system call of any of the traced processes. */
export interface Step {
  /** The call with its arguments as strace writes them; descriptors have their paths. */
  readonly text: string;
  /** The result as strace writes it: `0`, `-1 EIO (Input/output error) (INJECTED)`. */
  readonly result: string;
  /** Lines of the trace at which the call was made and had returned. */
  readonly begun: number;
  readonly done: number;
}

const calls =
  'fsync,fdatasync,write,writev,pwrite64,pwritev,pwritev2,sendto,sendmsg,link,linkat,rename,renameat,renameat2';

/** Returns the command that runs another one and writes its system calls to a file; process ids stay. */
export function traceCommand(file: string): string[] {
  return [
    'strace',
    '-D',
    '-f',
    '-y',
    '-s',
    '200',
    '--seccomp-bpf',
    '-e',
    `trace=${calls}`,
    '-e',
    'signal=none',
    '-o',
    file,
  ];
}

/** Returns the requirements that this machine lacks for a trace; undefined if it has all. */
export function missingForTraces(): string | undefined {
  try {
    const [command = '', ...words] = traceCommand('/dev/null');
    execFileSync(command, [...words, 'true'], { stdio: 'ignore' });
    return undefined;
  } catch {
    return 'it needs strace 5.3 or newer, and permission to trace';
  }
}

/** Returns the text after the last equals sign of a call's line. */
function resultOf(line: string): string {
  return line.slice(line.lastIndexOf(' = ') + 3);
}

/** Reads a trace, and joins the two halves of interrupted calls. */
export function readTrace(file: string): Step[] {
  const steps: Step[] = [];
  const unfinished = new Map<string, { text: string; begun: number }>();
  for (const [place, line] of readFileSync(file, 'utf8').split('\n').entries()) {
    const [, pid = '', rest = ''] = /^(\d+)\s+(.*)$/.exec(line) ?? [];
    const resumed = unfinished.get(pid);
    if (rest.endsWith('<unfinished ...>')) unfinished.set(pid, { text: rest, begun: place });
    else if (rest.startsWith('<...') && resumed !== undefined) {
      steps.push({ ...resumed, result: resultOf(rest), done: place });
      unfinished.delete(pid);
    } else if (/^\w+\(/.test(rest)) steps.push({ text: rest, result: resultOf(rest), begun: place, done: place });
  }
  return steps.toSorted((a, b) => a.begun - b.begun);
}

/** Returns the steps that match, in order. */
export function findSteps(steps: readonly Step[], pattern: RegExp): Step[] {
  return steps.filter(({ text }) => pattern.test(text));
}

/** Reports whether a matching call was made after one step had returned, and had returned before another was made. */
export function happenedBetween(steps: readonly Step[], after: Step, pattern: RegExp, before: Step): boolean {
  return findSteps(steps, pattern).some((step) => step.begun > after.done && step.done < before.begun);
}

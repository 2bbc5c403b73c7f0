/**
 * What one process tells another, or a file, of its state: at once when it has changed, and otherwise now and then, as a
 * sign of life. To write and to read the same again each second costs an idle service more than all else it does.
 */
export interface News {
  /** Calls `tell` when `text` is new, or the last sign of life is long ago. What `tell` throws is told again. */
  pass(text: string, tell: () => void): void;
}

/**
 * From one sign of life to the next, milliseconds. Whoever looks every second gives one every three: well within the ten
 * after which a silent process is taken for a stuck one.
 */
const defaultSilenceMs = 2500;

/** Creates the memory of what was told last. */
export function createNews(silenceMs = defaultSilenceMs): News {
  let told: string | undefined;
  let toldAtMs = 0;
  return {
    pass(text, tell) {
      const nowMs = performance.now();
      if (text === told && nowMs - toldAtMs < silenceMs) return;
      tell();
      told = text;
      toldAtMs = nowMs;
    },
  };
}

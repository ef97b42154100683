/** Timers that keep no process alive, for any number of seconds. */

/** The longest that a timer of Node can wait, in milliseconds. */
export const LONGEST_TIMER = 2 ** 31 - 1;

export interface Timer {
  clear: () => void;
}

/** Call a function after some seconds, even more than one timer can wait. */
export function after(seconds: number, call: () => void): Timer {
  let left = seconds * 1000;
  let timer: NodeJS.Timeout;
  const wait = (): void => {
    const now = Math.min(left, LONGEST_TIMER);
    left -= now;
    // A timer must not keep the process alive after the worker has ended.
    timer = setTimeout(left > 0 ? wait : call, now).unref();
  };
  wait();
  return { clear: () => clearTimeout(timer) };
}

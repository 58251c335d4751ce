// Node 20 lacks what the SDK takes from Node 22.
Promise.withResolvers ??= () => {
  const out = {};
  out.promise = new Promise((resolve, reject) => Object.assign(out, { resolve, reject }));
  return out;
};

console.log("hello from QuickJS");
